"""OffsetCommit (api 8), versions 0-9: to the group's log from 1, a retention time in 2-4, the leader epoch from 6 (KIP-320), static members
from 7 (KIP-345).

Version 0 commits to the metadata store, where the consumers of old kept their offsets. The answer comes when all in-sync replicas have the
offsets.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from broker.groups.offset_records import NO_EXPIRY, OffsetAndMetadata
from broker.handlers.delayed_answer import DelayedAnswer
from broker.handlers.group_topics import PartitionErrors, partitions_of, partitions_to_serve
from broker.handlers.offsets_in_store import commit_to_store
from broker.network.request_channel import Pending
from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.schema import Message
from storage.topic_partition import TopicPartition

DEFAULT_TIMESTAMP = -1
DEFAULT_RETENTION_MS = -1


def handle_offset_commit(request: OffsetCommitRequest, context: RequestContext) -> Message | Pending | Coroutine[Any, Any, Message]:
    """Store offsets of a group."""
    errors = PartitionErrors()
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        for topic in request.topics:
            for partition in topic.partitions:
                errors.add(topic.name, partition.partition_index, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return _response(errors)
    if context.api_version == 0:
        return _commit_to_store(request, errors, context)
    # A partition that is named twice counts once, with what was said last.
    offsets = _offsets_to_commit(request, errors, context)
    if not offsets:
        return _response(errors)
    answer = DelayedAnswer(context)

    def reply(codes: Sequence[ErrorCode]) -> None:
        for (topic, index), code in zip(offsets, codes, strict=True):
            errors.add(topic, index, code)
        answer.complete(_response(errors))

    context.broker.groups.offsets.commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        list(offsets.items()),
        reply,
    )
    return answer.answer()


def _offsets_to_commit(
    request: OffsetCommitRequest, errors: PartitionErrors, context: RequestContext
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What can be committed; the rest is put into `errors`. One loop, because there may be hundreds."""
    now_ms = context.broker.clock.now_ms()
    expire_timestamp = NO_EXPIRY if request.retention_time_ms == DEFAULT_RETENTION_MS else now_ms + request.retention_time_ms
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in request.topics:
        name = topic.name
        partitions, error = partitions_of(name, context)
        for partition in topic.partitions:
            index = partition.partition_index
            if index in partitions:
                timestamp = partition.commit_timestamp
                offsets[TopicPartition(name, index)] = OffsetAndMetadata(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms if timestamp == DEFAULT_TIMESTAMP else timestamp,
                    expire_timestamp,
                )
            else:
                errors.add(name, index, error)
    return offsets


async def _commit_to_store(request: OffsetCommitRequest, errors: PartitionErrors, context: RequestContext) -> Message:
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    for place in partitions_to_serve([(name, partition.partition_index) for name, partition in asked], errors, context):
        name, partition = asked[place]
        code = await commit_to_store(request.group_id, TopicPartition(name, partition.partition_index), partition, context)
        errors.add(name, partition.partition_index, code)
    return _response(errors)


def _response(errors: PartitionErrors) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic,
                partitions=[OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in partitions],
            )
            for topic, partitions in errors.by_topic.items()
        ]
    )
