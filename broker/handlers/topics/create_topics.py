"""Handles CreateTopics (api 19), versions 0-7: KIP-4; defaults for -1 (KIP-464), also in versions before 4; from 5 configuration in the
answer (KIP-525), topic ids from 7. From 6 a client that has exhausted its quota for partitions is refused (KIP-599); earlier versions are
throttled afterwards.

Only the active controller's broker creates topics; any other broker answers NOT_CONTROLLER. The answer comes when this broker knows a
leader of every partition of the new topics, or after the timeout. Without ZooKeeper a new topic waits until another one of its name is
deleted, because Apache Kafka 4 creates it at once.
"""

from ottla.broker.handlers.configs.config_resources import MAX_ENTRIES
from ottla.broker.request.context import RequestContext
from ottla.controller.admin.topic_admin import CreatedTopic, NewTopic
from ottla.controller.errors import AdminTimeout, ControllerError
from ottla.coordination.error_map import api_error
from ottla.pauses import each, how_often, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
FIRST_WITH_STRICT_QUOTA = 6


async def handle_create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create each topic if possible, and report its result."""
    quota = context.mutation_quota(strict_since=FIRST_WITH_STRICT_QUOTA)
    results = await each(request.topics, _unknown)
    broker = context.broker
    controller = broker.cluster.controller
    if not controller.is_active:
        for result in results:
            result.error_code = ErrorCode.NOT_CONTROLLER
            await pause()
        return CreateTopicsResponse(topics=results)
    times_named = context.scratch(await how_often(topic.name for topic in request.topics))
    may_create_any = context.is_authorized(Operation.CREATE, ResourceType.CLUSTER, log_if_denied=False)
    wanted: list[tuple[CreatableTopic, CreatableTopicResult]] = context.scratch([])
    for topic, result in zip(request.topics, results, strict=True):
        await pause()
        if topic.name == CLUSTER_METADATA_TOPIC:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        elif times_named[topic.name] > 1:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = "Found multiple entries for this topic."
        elif not may_create_any and not context.is_authorized(Operation.CREATE, ResourceType.TOPIC, topic.name):
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            result.error_message = "Authorization failed."
        elif len(topic.configs) > MAX_ENTRIES:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"{len(topic.configs)} configurations of one topic; at most {MAX_ENTRIES} can be set at once."
        else:
            wanted.append((topic, result))
            continue
        if topic.name != CLUSTER_METADATA_TOPIC and not _may_describe(topic.name, context):
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    outcomes = await broker.administration.topic_admin.create_topics(
        context.scratch([await _new_topic(topic) for topic, _ in wanted]),
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
        take_mutations=quota.take,
        is_soon_free=lambda name: broker.config.standalone and controller.context.is_soon_deleted(name),
    )
    context.scratch(outcomes)
    for topic, result in wanted:
        await pause()
        outcome = outcomes[topic.name]
        if isinstance(outcome, ControllerError):
            result.error_code, result.error_message = api_error(outcome)
            if isinstance(outcome, AdminTimeout) and _may_describe(topic.name, context):
                result.topic_id = outcome.topic_id
        else:
            _describe(outcome, result, context)
    return CreateTopicsResponse(topics=results)


def _unknown(topic: CreatableTopic) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, configs=[], num_partitions=-1, replication_factor=-1)


async def _new_topic(topic: CreatableTopic) -> NewTopic:
    assignments: dict[int, list[int]] = {}
    for assignment in topic.assignments:
        assignments[assignment.partition_index] = assignment.broker_ids
        await pause()
    configs = {config.name: config.value for config in topic.configs}
    await pause()
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)


def _may_describe(topic: str, context: RequestContext) -> bool:
    """Whether the answer may show the configuration of the topic."""
    return context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic, log_if_denied=False)


def _describe(created: CreatedTopic, result: CreatableTopicResult, context: RequestContext) -> None:
    result.error_message = None
    if not _may_describe(created.name, context):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return
    result.topic_id = created.topic_id
    result.num_partitions = created.num_partitions
    result.replication_factor = created.replication_factor
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in created.config.describe()
    ]
