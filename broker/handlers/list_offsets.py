"""ListOffsets (api 2), versions 0-9.

KIP-79 timestamps from 1, isolation level from 2, leader epochs from 4 (KIP-320), the offset of the largest timestamp from 7 (KIP-734),
earliest local (-4) from 8 and latest tiered (-5) from 9 (KIP-405, KIP-1005): without tiering the first is the log start offset and the
second is unknown. Version 0 answers with a list of segment base offsets instead of one offset, latest first.

Deviation: version 0 goes by the largest timestamp of each segment, where Apache Kafka goes by the time its file was modified.
"""

from __future__ import annotations

from collections import Counter

from broker.error_map import error_code
from broker.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from replication.errors import ReplicationError
from replication.fetch_read import CONSUMER, end_offset_for
from replication.partition import Partition
from storage.errors import StorageError
from storage.partition_log import PartitionLog

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
UNKNOWN_OFFSET = -1
FIRST_VERSION_WITH_LEADER_EPOCH = 4


def handle_list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Offsets by time, for each partition by itself. A partition named twice is an error, since its answers could not be told apart."""
    asked = Counter((topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions)
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            if asked[topic.name, partition.partition_index] > 1:
                answer = ListOffsetsPartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.INVALID_REQUEST,
                    timestamp=-1,
                    offset=UNKNOWN_OFFSET,
                    leader_epoch=-1,
                )
            else:
                answer = _list_one(topic.name, partition, request, context)
            partitions.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _list_one(
    topic: str, asked: ListOffsetsPartition, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, timestamp=-1, offset=UNKNOWN_OFFSET, leader_epoch=-1)
    timestamp = asked.timestamp
    if timestamp < LATEST_TIERED or context.api_version < FIRST_VERSION_OF.get(timestamp, 0):
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    try:
        partition = context.broker.replica_manager.partition_or_raise(topic, asked.partition_index)
        log = partition.check_leader(asked.current_leader_epoch)
        end_offset = end_offset_for(partition, request.replica_id, request.isolation_level)
        if timestamp == LATEST and request.replica_id == CONSUMER:
            partition.check_offset_is_available()
        if context.api_version == 0:
            answer.old_style_offsets = _old_style_offsets(log, asked, end_offset)
            return answer
        answer.timestamp, answer.offset, answer.leader_epoch = _find(partition, timestamp, end_offset)
        if context.api_version < FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = -1
    except (StorageError, ReplicationError) as error:
        answer.error_code = error_code(error)
    return answer


def _find(partition: Partition, timestamp: int, end_offset: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) of what was asked for; -1s when there is no such record below `end_offset`."""
    log = partition.log
    if timestamp == LATEST:
        return -1, end_offset, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.leader_epochs.epoch_of(log.log_start_offset)
        return -1, log.log_start_offset, -1 if epoch is None else epoch
    if timestamp == LATEST_TIERED:
        return -1, UNKNOWN_OFFSET, -1
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end_offset:
        return -1, UNKNOWN_OFFSET, -1
    return found.timestamp, found.offset, found.leader_epoch


def _old_style_offsets(log: PartitionLog, asked: ListOffsetsPartition, end_offset: int) -> list[int]:
    """Version 0: up to `max_num_offsets` offsets at which a consumer may begin to read what is older than the timestamp."""
    begins = [(max(segment.base_offset, log.log_start_offset), segment.largest_timestamp) for segment in log.segments]
    if asked.timestamp == EARLIEST:
        begins = begins[:1]
    elif asked.timestamp != LATEST:
        begins = [begin for begin in begins if begin[1] <= asked.timestamp]
    offsets = [offset for offset, _ in begins]
    if asked.timestamp == LATEST and log.active_segment.size:
        offsets.append(log.log_end_offset)
    visible = sorted({min(offset, end_offset) for offset in offsets}, reverse=True)
    return visible[: max(asked.max_num_offsets, 0)]
