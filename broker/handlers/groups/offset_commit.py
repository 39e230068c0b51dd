"""OffsetCommit (api 8), versions 0-9: to the group's log from 1, a retention time in 2-4, the leader epoch from 6 (KIP-320), static members
from 7 (KIP-345).

Version 0 commits to the metadata store, where the consumers of old kept their offsets. The answer comes when all in-sync replicas have the
offsets.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from typing import Any

from broker.groups.offset_records import NO_EXPIRY, OffsetAndMetadata
from broker.groups.plain_commits import PlainCommit
from broker.handlers.delayed_answer import DelayedAnswer
from broker.handlers.groups.group_topics import PartitionErrors, partitions_of, partitions_to_serve
from broker.handlers.groups.offsets_in_store import commit_to_store
from broker.network.connection import Connection
from broker.network.request_channel import Answer, Pending
from broker.request.context import RequestContext
from broker.request.services import Services
from broker.request.turns import Steps
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.offset_commit_fast_path import encode_offset_commit_response, read_offset_commit
from protocol.schema.message import Message
from storage.disk.topic_partition import TopicPartition

DEFAULT_TIMESTAMP = -1
DEFAULT_RETENTION_MS = -1
MOST_ACCEPTED = 4096
MOST_BYTES_AT_ONCE = 64 * 1024
"""A commit of thousands of partitions takes the ordinary way, in steps."""
_ACCEPTED: dict[int, OffsetCommitResponsePartition] = {}
"""What is answered for a partition whose offset is stored: the same for every topic and group, and nobody changes it."""


def handle_offset_commit(
    request: OffsetCommitRequest, context: RequestContext
) -> Steps[Message | Answer | Coroutine[Any, Any, Steps[Message]]]:
    """Store offsets of a group."""
    errors = PartitionErrors()
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        for topic in request.topics:
            errors.name(topic.name)
            for partition in topic.partitions:
                errors.add(topic.name, partition.partition_index, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                yield
        return (yield from _response(errors))
    if context.api_version == 0:
        return _commit_to_store(request, errors, context)
    # A partition that is named twice counts once, with what was said last.
    offsets = yield from _offsets_to_commit(request, errors, context)
    if not offsets:
        return (yield from _response(errors))
    answer = DelayedAnswer(context)

    def reply(codes: Sequence[ErrorCode]) -> None:
        by_topic = errors.by_topic
        for (topic, index), code in zip(offsets, codes, strict=True):
            answers = by_topic.get(topic)
            if answers is None:
                by_topic[topic] = [(index, code)]
            else:
                answers.append((index, code))
        answer.complete_steps(_response(errors))

    context.broker.groups.offsets.commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        list(offsets.items()),
        reply,
    )
    response = answer.answer()
    return (yield from response) if isinstance(response, Generator) else response


def handle_offset_commit_frame(
    frame: memoryview, offset: int, version: int, correlation_id: int, connection: Connection, broker: Services
) -> bytes | Pending | None:
    """The hot path: offsets without metadata, of partitions that exist, in a group that is known. None: take the ordinary way.

    Nothing was done then. Whatever is wrong the ordinary way finds again, and says it for each partition.
    """
    if len(frame) > MOST_BYTES_AT_ONCE:
        return None
    shape = read_offset_commit(frame, offset, version)
    if shape is None:
        return None
    group_id, generation_id, member_id, group_instance_id, topics = shape
    may = connection.access.may
    if not topics or not may(Operation.READ, ResourceType.GROUP, group_id):
        return None
    images = broker.cluster.topics
    count = 0
    for topic in topics:
        image = images.get(topic.topic)
        if image is None or not may(Operation.READ, ResourceType.TOPIC, topic.topic):
            return None
        different = set(topic.indexes)
        if len(different) != len(topic.indexes) or not image.partitions.keys() >= different:
            return None
        count += len(different)
    if len(topics) > 1 and len({topic.topic for topic in topics}) != len(topics):
        return None
    answer: bytes | None = None
    pending: Pending | None = None

    def reply(code: ErrorCode) -> None:
        nonlocal answer
        answer = encode_offset_commit_response(version, correlation_id, topics, code)
        if pending is not None:
            pending.complete(answer)

    commit = PlainCommit(topics, broker.clock.now_ms(), count)
    if not broker.groups.offsets.commit_plain(group_id, member_id, group_instance_id, generation_id, commit, reply):
        return None
    if answer is None:
        pending = Pending()
    return answer or pending


def _offsets_to_commit(
    request: OffsetCommitRequest, errors: PartitionErrors, context: RequestContext
) -> Steps[dict[TopicPartition, OffsetAndMetadata]]:
    """What can be committed; the rest is put into `errors`. One loop, because there may be hundreds."""
    now_ms = context.broker.clock.now_ms()
    expire_timestamp = NO_EXPIRY if request.retention_time_ms == DEFAULT_RETENTION_MS else now_ms + request.retention_time_ms
    new = tuple.__new__  # 0.1 µs; the constructors of named tuples, which call it, take 0.3
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in request.topics:
        name = topic.name
        partitions, error = partitions_of(name, context)
        if not partitions:
            errors.name(name)
        for partition in topic.partitions:
            index = partition.partition_index
            if index in partitions:
                timestamp = partition.commit_timestamp
                value = (
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms if timestamp == DEFAULT_TIMESTAMP else timestamp,
                    expire_timestamp,
                )
                offsets[new(TopicPartition, (name, index))] = new(OffsetAndMetadata, value)
            else:
                errors.add(name, index, error)
            yield
    return offsets


async def _commit_to_store(request: OffsetCommitRequest, errors: PartitionErrors, context: RequestContext) -> Steps[Message]:
    for topic_partition, partition in await context.broker.turns.spread(partitions_to_serve(request.topics, errors, context)):
        errors.add(*topic_partition, await commit_to_store(request.group_id, topic_partition, partition, context))
    return _response(errors)


def _response(errors: PartitionErrors) -> Steps[Message]:
    response = OffsetCommitResponse()
    for topic, partitions in errors.by_topic.items():
        answer = OffsetCommitResponseTopic(name=topic)
        for index, code in partitions:
            answer.partitions.append((None if code else _ACCEPTED.get(index)) or _answer(index, code))
            yield
        response.topics.append(answer)
    return response


def _answer(index: int, code: ErrorCode) -> OffsetCommitResponsePartition:
    answer = OffsetCommitResponsePartition(partition_index=index, error_code=code)
    if not code and len(_ACCEPTED) < MOST_ACCEPTED:
        _ACCEPTED[index] = answer
    return answer
