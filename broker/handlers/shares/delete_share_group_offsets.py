"""Handles DeleteShareGroupOffsets (api 92), version 0: an administrator deletes the offsets of a share group in topics (KIP-932)."""

from __future__ import annotations

from ottla.broker.request.context import RequestContext
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

NOTHING = "There is no offset information to delete."


async def handle_delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Delete the offsets of each topic that the group has state of."""
    groups = context.broker.coordinators.groups.share
    if not groups.is_served:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if not context.is_authorized(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error, message, group = groups.find_to_change(request.group_id, is_made=False)
    if group is None:
        return _refused(error, message)
    topics = context.broker.metadata.topics
    known = group.partitions_with_state()
    chosen: dict[bytes, tuple[str, frozenset[int]]] = {}
    answers = []
    for name in dict.fromkeys(topic.topic_name for topic in request.topics):
        answer = DeleteShareGroupOffsetsResponseTopic(topic_name=name)
        if not context.is_authorized(Operation.READ, ResourceType.TOPIC, name):
            _set(answer, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.message)
        elif name not in topics:
            _set(answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message)
        elif topics[name].topic_id not in known:
            _set(answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING)
        else:
            answer.topic_id = topics[name].topic_id
            chosen[answer.topic_id] = known[answer.topic_id]
        answers.append(answer)
        await pause()
    error, results = await groups.offsets.forget(group, chosen)
    if error:
        return _refused(error)
    for answer in answers:
        for index in chosen.get(answer.topic_id, ("", ()))[1]:
            failed = results[answer.topic_id, index]
            if failed:
                _set(answer, failed, failed.message)
        await pause()
    return DeleteShareGroupOffsetsResponse(responses=answers)


def _set(answer: DeleteShareGroupOffsetsResponseTopic, error: ErrorCode, message: str) -> None:
    answer.error_code, answer.error_message = error, message


def _refused(error: ErrorCode, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message or error.message)
