"""Serves OffsetDelete (api 47), version 0 (KIP-496)."""

from collections.abc import Sequence
from typing import Final

from ottla.broker.handlers.groups.group_topics import partitions_of
from ottla.broker.request.context import RequestContext
from ottla.coordination.groups.offset_commits import OffsetCommits
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.topic_partition import TopicPartition

PARTITIONS_TOGETHER: Final = 1000
"""Partitions whose offsets are deleted together; so many take a millisecond."""


async def handle_offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Forget a group's offsets of topics that no member subscribes to."""
    if not context.is_authorized(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answers: dict[str, list[tuple[int, ErrorCode]]] = {}
    """By topic, in the order in which they become known."""
    served = context.scratch(list(await _partitions_to_serve(request, answers, context)))
    offsets = context.broker.coordinators.groups.offsets
    group = await offsets.read_subscriptions(request.group_id)
    try:
        error = await _delete(request.group_id, served, answers, offsets)
    finally:
        if group is not None:
            group.forget_subscriptions()
    if error:
        return OffsetDeleteResponse(error_code=error)
    response = OffsetDeleteResponse()
    for topic, partitions in context.scratch(answers).items():
        answer = OffsetDeleteResponseTopic(name=topic)
        for index, code in partitions:
            answer.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            await pause()
        response.topics.append(answer)
    return response


async def _delete(
    group_id: str, served: Sequence[TopicPartition], answers: dict[str, list[tuple[int, ErrorCode]]], offsets: OffsetCommits
) -> ErrorCode:
    """Delete the offsets with pauses, and add the answers. Returns the error of all."""
    for begin in range(0, len(served) or 1, PARTITIONS_TOGETHER):
        some = served[begin : begin + PARTITIONS_TOGETHER]
        error, codes = offsets.delete_offsets(group_id, some)
        if begin and error == ErrorCode.GROUP_ID_NOT_FOUND:  # it ended with its last offset
            error, codes = ErrorCode.NONE, [ErrorCode.NONE] * len(some)
        if error:
            return error
        for (topic, index), code in zip(some, codes, strict=True):
            answers.setdefault(topic, []).append((index, code))
        await pause()
    return ErrorCode.NONE


async def _partitions_to_serve(
    request: OffsetDeleteRequest, answers: dict[str, list[tuple[int, ErrorCode]]], context: RequestContext
) -> dict[TopicPartition, None]:
    """The partitions that can be served, each once; the others are answered."""
    served: dict[TopicPartition, None] = context.scratch({})
    for topic in request.topics:
        partitions, error = partitions_of(topic.name, context.access, context.broker.metadata)
        if not partitions:
            answers.setdefault(topic.name, [])  # answered even without a partition, as Apache Kafka does
        for partition in topic.partitions:
            index = partition.partition_index
            if index in partitions:
                served[TopicPartition(topic.name, index)] = None
            else:
                answers.setdefault(topic.name, []).append((index, error))
            await pause()
        await pause()
    return served
