"""Reading one partition for a Fetch: which offsets the asker may see, and what it is told beside the records.

Called by the Fetch handler for consumers and followers alike; the difference is the bound: a consumer reads below the high watermark
(or the last stable offset), a follower up to the log end offset, and what a follower asks for is what its leader learns of it.
"""

from __future__ import annotations

from typing import Protocol, cast

from protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from replication.partition import Partition
from replication.replica_manager import ReplicaManager
from storage.errors import OffsetOutOfRange

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

CONSUMER = -1
DEBUGGING_CONSUMER = -2
"""The replica id of a tool that reads up to the log end offset without being a follower."""


class AskedPartition(Protocol):
    """One partition as a fetch asks for it."""

    name: str | None
    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    start: int


def end_offset_for(partition: Partition, replica_id: int, isolation: int) -> int:
    """The first offset that the asker may not see."""
    log = partition.log
    if replica_id != CONSUMER:
        return log.log_end_offset
    return log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark


def read_partition(
    replicas: ReplicaManager,
    name: str,
    asked: AskedPartition,
    replica_id: int,
    isolation: int,
    max_bytes: int,
    now_ms: int,
    *,
    min_one_batch: bool,
) -> PartitionData:
    """Read up to `max_bytes` of one partition.

    Raises the errors of ReplicaManager.partition_or_raise, of the leader and epoch checks, and OffsetOutOfRange.
    """
    of_topic = replicas.partitions.get(name)
    partition = of_topic.get(asked.partition) if of_topic is not None else None
    if partition is None:
        partition = replicas.partition_or_raise(name, asked.partition)
    log = partition.check_leader(asked.leader_epoch)
    offset = asked.offset
    if replica_id >= 0:
        partition.check_replica(replica_id)
    if asked.last_fetched_epoch != -1:
        diverging = _diverging_epoch(partition, asked)
        if diverging is not None:
            return PartitionData(
                partition_index=asked.partition,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                diverging_epoch=diverging,
                records=b"",
            )
    found = log.read(offset, max_bytes, end_offset_for(partition, replica_id, isolation), min_one_batch)
    if replica_id >= 0:
        partition.on_follower_fetch(replica_id, offset, asked.start, now_ms)
    region = found.region
    answer = PartitionData(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        # encode_parts hands on whatever has a length; the network sends a region without reading it
        records=b"" if region is None else cast("memoryview", region),
    )
    if isolation == READ_COMMITTED and replica_id == CONSUMER:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in (log.aborted_transactions(offset, found.next_offset) if region is not None else ())
        ]
    else:
        answer.aborted_transactions = None
    return answer


def _diverging_epoch(partition: Partition, asked: AskedPartition) -> EpochEndOffset | None:
    """Where the asker's log parts from ours, when it does (KIP-595 for followers, KIP-320 for consumers)."""
    log = partition.log
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch == -1 or end_offset == -1:
        raise OffsetOutOfRange(partition.topic_partition, asked.offset, log.log_start_offset, log.log_end_offset)
    if epoch < asked.last_fetched_epoch or end_offset < asked.offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
