"""Serves OffsetFetch (api 9), versions 0-10.

Offsets come from the group's log from 1 on; all partitions and an error for the whole request from 2, the leader epoch from 5 (KIP-320),
stable offsets from 7 (KIP-447), many groups from 8 (KIP-709), the epoch of a member from 9 (KIP-848),
topic ids from 10.

Version 0 reads from the metadata store, where old consumers kept their offsets. If this broker does not coordinate the group, Apache Kafka
answers version 1 without topics. Here the error is in each partition, the only place that this version has for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from ottla.broker.handlers.groups.offsets_in_store import fetch_from_store
from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.pauses import each, move, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID

FIRST_VERSION_WITH_ERROR_OF_ALL = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10
NO_OFFSET = -1
PARTITIONS_TOGETHER = 128


async def handle_offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Return the committed offsets of one group or of several."""
    version = context.api_version
    if version >= FIRST_VERSION_WITH_MANY_GROUPS:
        response = OffsetFetchResponse()
        repeats = Repeats(context)
        for asked in request.groups:
            if repeats.are_too_many(asked.group_id):
                response.groups.append(OffsetFetchResponseGroup(group_id=asked.group_id, error_code=ErrorCode.INVALID_REQUEST))
            else:
                response.groups.append(await _of_group(asked, request, context))
            await pause()
        return response
    if version == 0:
        return await _fetch_from_store(request, context)
    group = await _fetch(request.group_id, request.topics, request, context)
    if group.error_code and version < FIRST_VERSION_WITH_ERROR_OF_ALL:
        group.topics = await _refused(request.topics or [], ErrorCode.of(group.error_code))
    response = OffsetFetchResponse()
    for topic in context.scratch(group.topics):
        response.topics.append(await _old_topic(topic))
        await pause()
    if version >= FIRST_VERSION_WITH_ERROR_OF_ALL:
        response.error_code = group.error_code
    return response


async def _of_group(asked: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponseGroup:
    """The offsets of one of many groups. Topics with an id have their names only here."""
    if context.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
        return await _fetch(asked.group_id, asked.topics, request, context, asked.member_id, asked.member_epoch)
    metadata = context.broker.metadata
    unknown: list[OffsetFetchRequestTopics] = []
    topics: list[OffsetFetchRequestTopics] | None = None if asked.topics is None else context.scratch([])
    for topic in asked.topics or ():
        name = metadata.names_by_id.get(topic.topic_id)
        if name is None or topics is None:
            unknown.append(topic)
        else:
            topics.append(OffsetFetchRequestTopics(name=name, partition_indexes=topic.partition_indexes))
        await pause()
    answer = await _fetch(asked.group_id, topics, request, context, asked.member_id, asked.member_epoch)
    if answer.error_code:
        return answer
    answered: list[OffsetFetchResponseTopics] = []
    for found in context.scratch(answer.topics):
        found.topic_id = metadata.topic_id(found.name)
        if found.topic_id != ZERO_UUID:  # else it was deleted meanwhile
            answered.append(found)
        await pause()
    refused = await _refused(unknown, ErrorCode.UNKNOWN_TOPIC_ID)
    for topic, its in zip(unknown, refused, strict=True):
        its.topic_id = topic.topic_id
        await pause()
    await move(refused, answered)
    answer.topics = answered
    return answer


async def _fetch(
    group_id: str,
    topics: list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None,
    request: OffsetFetchRequest,
    context: RequestContext,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> OffsetFetchResponseGroup:
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    offsets = context.broker.coordinators.groups.offsets
    error = offsets.check_fetch(group_id, member_id, member_epoch)
    if error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    refused: list[OffsetFetchResponseTopics] = []
    partitions: dict[str, dict[int, None]] = context.scratch({})
    if topics is None:
        for name, indexes in offsets.committed(group_id).items():
            if context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name):
                partitions[name] = dict.fromkeys(indexes)
            await pause()
    else:
        for topic in topics:
            if context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                await _add(topic.partition_indexes, partitions.setdefault(topic.name, {}))
            else:
                refused += await _refused([topic], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            await pause()
    answers: dict[str, OffsetFetchResponseTopics] = context.scratch({})
    for some in _portions(partitions):
        error, found = offsets.fetch(group_id, some, require_stable=request.require_stable)
        if error:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
        for name, answered in found.items():
            answer = answers.setdefault(name, OffsetFetchResponseTopics(name=name))
            answer.partitions += answered
        await pause()
    found_topics = await each(answers.values(), lambda answer: answer)
    await move(refused, found_topics)
    return OffsetFetchResponseGroup(group_id=group_id, topics=found_topics)


async def _add(indexes: Iterable[int], into: dict[int, None]) -> None:
    """Adds partitions, each once."""
    left = iter(indexes)
    while some := list(islice(left, PARTITIONS_TOGETHER)):
        into.update(dict.fromkeys(some))
        await pause()


def _portions(partitions: Mapping[str, Iterable[int]]) -> Iterator[dict[str, list[int]]]:
    """All partitions, about PARTITIONS_TOGETHER at a time. Yields at least once, without partitions if there are none."""
    some: dict[str, list[int]] = {}
    count = 0
    is_first = True
    for name, indexes in partitions.items():
        left = iter(indexes)
        while part := list(islice(left, PARTITIONS_TOGETHER)):
            some[name] = part
            count += len(part)
            if count >= PARTITIONS_TOGETHER:
                yield some
                some, count, is_first = {}, 0, False
    if some or is_first:
        yield some


async def _refused(
    topics: list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | list[OffsetFetchRequestTopic | OffsetFetchRequestTopics],
    error: ErrorCode,
) -> list[OffsetFetchResponseTopics]:
    refused = []
    for topic in topics:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error)
            )
            await pause()
        refused.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
        await pause()
    return refused


async def _old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    """The same as versions of one group have it."""
    old = OffsetFetchResponseTopic(name=topic.name)
    for found in topic.partitions:
        old.partitions.append(
            OffsetFetchResponsePartition(
                partition_index=found.partition_index,
                committed_offset=found.committed_offset,
                committed_leader_epoch=found.committed_leader_epoch,
                metadata=found.metadata,
                error_code=found.error_code,
            )
        )
        await pause()
    return old


async def _fetch_from_store(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    asked = request.topics or []

    async def refused(topics: list[OffsetFetchRequestTopic], error: ErrorCode) -> list[OffsetFetchResponseTopic]:
        answers = []
        for topic in await _refused(topics, error):
            await pause()
            answers.append(await _old_topic(topic))
        return answers

    if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        return OffsetFetchResponse(topics=await refused(asked, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    topics: list[OffsetFetchResponseTopic] = []
    partitions: dict[str, dict[int, None]] = context.scratch({})
    for topic in asked:
        await pause()
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics += await refused([topic], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif topic.partition_indexes:
            await _add(topic.partition_indexes, partitions.setdefault(topic.name, {}))
    for name, indexes in partitions.items():
        answer = OffsetFetchResponseTopic(name=name)
        for index in indexes:
            await pause()
            code, offset = await fetch_from_store(request.group_id, TopicPartition(name, index), context)
            answer.partitions.append(
                OffsetFetchResponsePartition(partition_index=index, committed_offset=offset, metadata="", error_code=code)
            )
        topics.append(answer)
    return OffsetFetchResponse(topics=topics)
