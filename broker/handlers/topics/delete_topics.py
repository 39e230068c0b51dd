"""Handles DeleteTopics (api 20), versions 0-6: KIP-4; TOPIC_DELETION_DISABLED from 3; refused by an exhausted quota
from 5 (KIP-599); by topic id from 6 (KIP-516). Deletion by id never
deletes another topic that has got the same name meanwhile.

Only the active controller's broker deletes topics. The answer comes when this broker has dropped the topics from its metadata, or after the
timeout.
"""

from ottla.broker.request.context import RequestContext
from ottla.config.keys.general import DELETE_TOPIC_ENABLE
from ottla.controller.errors import ControllerError, UnknownTopicId
from ottla.coordination.error_map import error_code
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.uuid import ZERO_UUID

FIRST_VERSION_BY_TOPIC_ID = 6
FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_WITH_STRICT_QUOTA = 5


async def handle_delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete each topic if possible, and report its result."""
    quota = context.mutation_quota(strict_since=FIRST_WITH_STRICT_QUOTA)
    topics = await _topics_of(request, context.api_version)
    results = await each(topics, lambda topic: DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
    refused = await _refusal(topics, context)
    if refused is not None:
        for result in results:
            result.error_code = refused
        return DeleteTopicsResponse(responses=results)
    broker = context.broker
    names_by_id = broker.cluster.controller.context.topic_names
    deleting: dict[str, bytes] = context.scratch({})
    for result in results:
        await pause()
        is_by_id = result.topic_id != ZERO_UUID
        if is_by_id:
            result.name = names_by_id.get(result.topic_id)
        name = result.name
        if name is None:
            # Apache Kafka treats a topic without name and id as one that the client may not delete.
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        may_describe = context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name)
        may_delete = context.is_authorized(Operation.DELETE, ResourceType.TOPIC, name)
        if is_by_id and not may_describe:
            result.name = None
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not may_delete:
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in broker.metadata.topics:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif is_by_id:
            deleting.setdefault(name, result.topic_id)
        else:
            deleting[name] = ZERO_UUID
    if deleting:
        outcomes = await broker.administration.topic_admin.delete_topics(
            list(deleting),
            ids={name: topic_id for name, topic_id in deleting.items() if topic_id != ZERO_UUID},
            order_by_id=broker.cluster.controller.order_deletions,
            timeout_ms=request.timeout_ms,
            take_mutations=quota.take,
        )
        for result in results:
            await pause()
            outcome = outcomes.get(result.name) if result.name is not None else None
            if isinstance(outcome, ControllerError):
                result.error_code = error_code(outcome)
                if isinstance(outcome, UnknownTopicId):
                    result.name = None
    return DeleteTopicsResponse(responses=results)


async def _topics_of(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= FIRST_VERSION_BY_TOPIC_ID:
        return request.topics
    return await each(request.topic_names, lambda name: DeleteTopicState(name=name, topic_id=ZERO_UUID))


async def _refusal(topics: list[DeleteTopicState], context: RequestContext) -> ErrorCode | None:
    """The error because of which the whole request is refused, or None."""
    if not context.broker.cluster.controller.is_active:
        return ErrorCode.NOT_CONTROLLER
    if not context.broker.config[DELETE_TOPIC_ENABLE]:
        return (
            ErrorCode.TOPIC_DELETION_DISABLED if context.api_version >= FIRST_VERSION_WITH_DELETION_DISABLED else ErrorCode.INVALID_REQUEST
        )
    for topic in topics:
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            return ErrorCode.INVALID_REQUEST
        await pause()
    return None
