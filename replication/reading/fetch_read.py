"""Reading one partition for a Fetch: which offsets the asker may see, and what it is told beside the records.

Called by the Fetch handler for consumers and followers alike; the difference is the bound: a consumer reads below the high watermark
(or the last stable offset), a follower up to the log end offset, and what a follower asks for is what its leader learns of it.
"""

from __future__ import annotations

from typing import Protocol, cast

from protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from protocol.uuid import ZERO_UUID
from replication.control.replica_manager import ReplicaManager
from replication.errors import InconsistentTopicId
from replication.leader.partition import Partition
from replication.ports.replica_selector import NO_PREFERENCE, preferred_read_replica
from replication.ports.throttle import ReplicationQuota
from storage.errors import OffsetOutOfRange

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

CONSUMER = -1
DEBUGGING_CONSUMER = -2
"""The replica id of a tool that reads up to the log end offset without being a follower."""


class FetchParams:
    """Who reads, and how. `or_follower`: a replica that only follows will do (KIP-392).

    `rack_id` is where a consumer stands that may be sent to another replica; None if it may not. `listener` is where it reaches brokers.
    `throttled_bytes` and `is_withheld` are of one reading of all partitions: how many bytes count against the leader's quota if they are
    sent, and whether some were kept back.
    """

    __slots__ = ("has_turn", "is_withheld", "isolation", "listener", "or_follower", "rack_id", "replica_id", "throttled_bytes")

    def __init__(self, replica_id: int, isolation: int, *, or_follower: bool, rack_id: str | None = None, listener: str = "") -> None:
        self.replica_id = replica_id
        self.isolation = isolation
        self.or_follower = or_follower
        self.rack_id = rack_id
        self.listener = listener
        self.throttled_bytes = 0
        self.has_turn = False
        self.is_withheld = False

    def begin(self) -> None:
        """Everything is read anew."""
        self.throttled_bytes = 0
        self.has_turn = False
        self.is_withheld = False

    def count(self, quota: ReplicationQuota) -> None:
        """What was read is sent."""
        quota.count(self.throttled_bytes)
        if self.has_turn:
            quota.end_turn(self.replica_id)

    def end_offset(self, partition: Partition) -> int:
        """The first offset that the asker may not see."""
        log = partition.log
        if self.replica_id != CONSUMER:
            return log.log_end_offset
        return log.last_stable_offset if self.isolation == READ_COMMITTED else log.high_watermark


class AskedPartition(Protocol):
    """One partition as a fetch asks for it. `topic_id` is ZERO_UUID when it asks by name."""

    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    start: int


class SessionPartition(AskedPartition, Protocol):
    """One partition of a fetch session, and what the asker was last told of it."""

    high_watermark: int
    log_start_offset: int


def read_partition(
    replicas: ReplicaManager,
    name: str,
    asked: AskedPartition,
    params: FetchParams,
    max_bytes: int,
    now_ms: int,
    *,
    min_one_batch: bool,
    is_first_read: bool = True,
    may_wait: bool = True,
) -> PartitionData:
    """Read up to `max_bytes` of one partition. `is_first_read`: a fetch that waited tells nothing new about its follower.
    `now_ms` is that of `elapsed_ms`.

    Raises the errors of ReplicaManager.partition_or_raise, of the leader and epoch checks, InconsistentTopicId and OffsetOutOfRange;
    ColdRead unless it `may_wait` for the disk, before anything has changed.
    """
    of_topic = replicas.partitions.get(name)
    partition = of_topic.get(asked.partition) if of_topic is not None else None
    if partition is None:
        partition = replicas.partition_or_raise(name, asked.partition)
    log = partition.log
    topic_id = asked.topic_id
    if topic_id not in (ZERO_UUID, log.topic_id) and log.topic_id != ZERO_UUID:
        raise InconsistentTopicId(f"a fetch session holds {partition.topic_partition} by an id that is not its own any more")
    if params.rack_id is not None and partition.is_leader and replicas.replica_selector is not None:
        preferred = preferred_read_replica(
            partition, replicas.cluster, replicas.replica_selector, params.rack_id, params.listener, asked.offset, now_ms
        )
        if preferred != NO_PREFERENCE:
            partition.check_leader_epoch(asked.leader_epoch)
            return _without_records(partition, preferred_read_replica=preferred)
    partition.check_leader(asked.leader_epoch, or_follower=params.or_follower)
    replica_id = params.replica_id
    offset = asked.offset
    if replica_id >= 0:
        partition.check_replica(replica_id, asked.leader_epoch)
    if asked.last_fetched_epoch != -1:
        diverging = _diverging_epoch(partition, asked)
        if diverging is not None:
            return _without_records(partition, diverging_epoch=diverging)
    found = log.read(offset, max_bytes, params.end_offset(partition), min_one_batch, may_wait)
    region = found.region
    if replica_id >= 0:
        if is_first_read:
            partition.on_follower_fetch(replica_id, offset, asked.start, now_ms)
        quota = replicas.leader_quota
        if quota is not None and quota.is_limited and region is not None and not _passes(quota, partition, params, len(region)):
            region = None
    answer = PartitionData(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        # encode_parts hands on whatever has a length; the network sends a region without reading it
        records=b"" if region is None else cast("memoryview", region),
    )
    if params.isolation == READ_COMMITTED and replica_id == CONSUMER:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in (log.aborted_transactions(offset, found.next_offset, may_wait) if region is not None else ())
        ]
    else:
        answer.aborted_transactions = None
    return answer


def _passes(quota: ReplicationQuota, partition: Partition, params: FetchParams, size: int) -> bool:
    """Whether a follower may have these bytes now. One in sync always may, or the ISR would shrink for it.

    One that is behind may have all that it asks for in its turn, until that is more than the quota allows.
    """
    if not quota.is_throttled(partition.log):
        return True
    if params.replica_id not in partition.isr:
        params.is_withheld = params.is_withheld or (
            quota.is_exceeded(params.throttled_bytes) if params.has_turn else not quota.is_open_to(params.replica_id)
        )
        if params.is_withheld:
            return False
        params.has_turn = True
    params.throttled_bytes += size
    return True


def is_idle_follower(partition: Partition, asked: SessionPartition, replica_id: int, now_ms: int, *, is_first_read: bool) -> bool:
    """Whether a follower in a session that names topics by id has all there is, and was told all of it: nothing is to be read or said.

    The leader learns what it has to learn of it. Most partitions of most fetches between brokers are so, and a look costs a fraction of
    reading and answering.
    """
    log = partition.log
    if (
        asked.offset != log.log_end_offset
        or not partition.is_leader
        or asked.leader_epoch != partition.leader_epoch
        or asked.last_fetched_epoch not in (-1, log.latest_epoch)
        or asked.topic_id != log.topic_id
        or replica_id not in partition.followers
    ):
        return False
    if is_first_read:
        partition.on_follower_fetch(replica_id, asked.offset, asked.start, now_ms)
    return asked.high_watermark == log.high_watermark and asked.log_start_offset == log.log_start_offset


def is_idle_consumer(partition: Partition, asked: SessionPartition, isolation: int) -> bool:
    """The same of a consumer in such a session, which nobody is to send to another replica: the leader learns nothing of it."""
    log = partition.log
    return (
        asked.offset == (log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark)
        and asked.high_watermark == log.high_watermark
        and asked.log_start_offset == log.log_start_offset
        and partition.is_leader
        and asked.leader_epoch in (-1, partition.leader_epoch)
        and asked.last_fetched_epoch == -1
        and asked.topic_id == log.topic_id
        and log.truncation is None
    )


def _without_records(
    partition: Partition, diverging_epoch: EpochEndOffset | None = None, preferred_read_replica: int = NO_PREFERENCE
) -> PartitionData:
    log = partition.log
    answer = PartitionData(
        partition_index=partition.topic_partition.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=preferred_read_replica,
        records=b"",
    )
    if diverging_epoch is not None:
        answer.diverging_epoch = diverging_epoch
    return answer


def _diverging_epoch(partition: Partition, asked: AskedPartition) -> EpochEndOffset | None:
    """Where the asker's log parts from ours, when it does (KIP-595 for followers, KIP-320 for consumers). Raises OffsetOutOfRange."""
    log = partition.log
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch == -1 or end_offset == -1 or asked.offset < log.log_start_offset:
        raise OffsetOutOfRange(partition.topic_partition, asked.offset, log.log_start_offset, log.log_end_offset)
    if epoch < asked.last_fetched_epoch or end_offset < asked.offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
