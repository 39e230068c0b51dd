"""Handles AlterShareGroupOffsets (api 91), version 0: an administrator moves a share group without members to other offsets (KIP-932)."""

from __future__ import annotations

from ottla.broker.request.context import RequestContext
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.uuid import ZERO_UUID


async def handle_alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Move the group in the partitions that exist; the others are answered with an error."""
    groups = context.broker.coordinators.groups.share
    if not groups.is_served:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error, message, group = groups.find_to_change(request.group_id, is_made=True)
    if group is None:
        return _refused(error, message)
    names: dict[bytes, str] = {}
    offsets: dict[tuple[bytes, int], int] = {}
    errors: dict[str, ErrorCode] = {}
    """By topic; the topics that are not in it exist."""
    metadata = context.broker.metadata
    for topic in request.topics:
        name = topic.topic_name
        if not context.is_authorized(Operation.READ, ResourceType.TOPIC, name):
            errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in metadata.topics:
            errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic_id = metadata.topics[name].topic_id
            for partition in topic.partitions:
                if metadata.partition(name, partition.partition_index) is not None:
                    names[topic_id] = name
                    offsets[topic_id, partition.partition_index] = partition.start_offset
                await pause()
        await pause()
    error, results = await groups.offsets.move(group, names, offsets)
    if error:
        return _refused(error)
    ids = {name: topic_id for topic_id, name in names.items()}
    response = AlterShareGroupOffsetsResponse()
    for topic in request.topics:
        topic_id = ids.get(topic.topic_name, ZERO_UUID)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id)
        for partition in topic.partitions:
            index = partition.partition_index
            code = errors.get(topic.topic_name) or results.get((topic_id, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            message = code.message if code else None
            answer.partitions.append(AlterShareGroupOffsetsResponsePartition(partition_index=index, error_code=code, error_message=message))
            await pause()
        response.responses.append(answer)
    return response


def _refused(error: ErrorCode, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message or error.message)
