"""OffsetFetch (api 9), versions 0-9: from the group's log from 1, all partitions and an error of the whole from 2, the leader epoch from 5
(KIP-320), stable offsets from 7 (KIP-447), many groups from 8 (KIP-709).

Version 0 reads from the metadata store, where the consumers of old kept their offsets. Apache Kafka answers version 1 with no topics when
the group is not coordinated here; the error is put at the partitions instead, where that version has a place for it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.offsets_in_store import fetch_from_store
from broker.request_context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from storage.topic_partition import TopicPartition

FIRST_VERSION_WITH_ERROR_OF_ALL = 2
FIRST_VERSION_WITH_MANY_GROUPS = 8
NO_OFFSET = -1


def handle_offset_fetch(
    request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    """Say what a group, or several, committed."""
    version = context.api_version
    if version >= FIRST_VERSION_WITH_MANY_GROUPS:
        return OffsetFetchResponse(groups=[_fetch(group.group_id, group.topics, request, context) for group in request.groups])
    if version == 0:
        return _fetch_from_store(request, context)
    group = _fetch(request.group_id, request.topics, request, context)
    if group.error_code and version < FIRST_VERSION_WITH_ERROR_OF_ALL:
        group.topics = _refused(request.topics or [], ErrorCode.of(group.error_code))
    response = OffsetFetchResponse(topics=[_old_topic(topic) for topic in group.topics])
    if version >= FIRST_VERSION_WITH_ERROR_OF_ALL:
        response.error_code = group.error_code
    return response


def _fetch(
    group_id: str,
    topics: list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None,
    request: OffsetFetchRequest,
    context: RequestContext,
) -> OffsetFetchResponseGroup:
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    offsets = context.broker.groups.offsets
    refused: list[OffsetFetchResponseTopics] = []
    partitions: dict[str, dict[int, None]] | None = None
    if topics is not None:
        partitions = {}
        for topic in topics:
            if context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                partitions.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))  # each once
            else:
                refused += _refused([topic], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error, found = offsets.fetch(group_id, partitions, require_stable=request.require_stable)
    if error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    answers = [
        OffsetFetchResponseTopics(name=name, partitions=answered)
        for name, answered in found.items()
        if topics is not None or context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name)
    ]
    return OffsetFetchResponseGroup(group_id=group_id, topics=answers + refused)


def _refused(
    topics: list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | list[OffsetFetchRequestTopic | OffsetFetchRequestTopics],
    error: ErrorCode,
) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error)
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    """The same as versions of one group have it."""
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=each.partition_index,
                committed_offset=each.committed_offset,
                committed_leader_epoch=each.committed_leader_epoch,
                metadata=each.metadata,
                error_code=each.error_code,
            )
            for each in topic.partitions
        ],
    )


async def _fetch_from_store(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    asked = request.topics or []
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        return OffsetFetchResponse(topics=[_old_topic(topic) for topic in _refused(asked, ErrorCode.GROUP_AUTHORIZATION_FAILED)])
    topics: list[OffsetFetchResponseTopic] = []
    for topic in asked:
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics += [_old_topic(each) for each in _refused([topic], ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
            continue
        answer = OffsetFetchResponseTopic(name=topic.name)
        for index in topic.partition_indexes:
            code, offset = await fetch_from_store(request.group_id, TopicPartition(topic.name, index), context)
            answer.partitions.append(
                OffsetFetchResponsePartition(partition_index=index, committed_offset=offset, metadata="", error_code=code)
            )
        topics.append(answer)
    return OffsetFetchResponse(topics=topics)
