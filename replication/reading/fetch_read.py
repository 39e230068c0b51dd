"""Reads one partition for a Fetch: decides which offsets the reader may see, and finds records and the other fields of the answer.

The Fetch handler calls it for consumers and followers alike. They differ in three points:

- Limit: a consumer reads below the high watermark or the last stable offset, a follower up to the log end offset.
- Progress: a leader learns a follower's progress from the offset of the fetch.
- Quota: it limits the data for throttled followers.
"""

from __future__ import annotations

from typing import final

from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.errors import InconsistentTopicId
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.replica_selector import NO_PREFERENCE, preferred_read_replica
from ottla.replication.ports.throttle import ReplicationQuota
from ottla.replication.ports.waiters import Waiters
from ottla.replication.reading.asked_partition import CONSUMER, NO_EPOCH, READ_COMMITTED, AskedPartition
from ottla.storage.errors import OffsetOutOfRange
from ottla.storage.log.lookups import with_aborted
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.reads import FetchSlice
from ottla.storage.segment.file_region import FileRegion


@final
class FetchParams:
    """The reader of a fetch, and the common state of one reading of all partitions.

    `or_follower` allows reading from a replica that only follows (KIP-392). `rack_id` is the location of a consumer that may be sent to
    another replica; None if it may not. `listener` is the listener through which it reaches brokers.
    """

    __slots__ = (
        "finds_records",
        "has_turn",
        "is_first_reading",
        "is_withheld",
        "isolation",
        "left",
        "listener",
        "may_wait",
        "min_one_batch",
        "now_ms",
        "or_follower",
        "rack_id",
        "replica_id",
        "size",
        "throttled_bytes",
    )

    def __init__(self, replica_id: int, isolation: int, or_follower: bool = False, rack_id: str | None = None, listener: str = "") -> None:
        self.replica_id = replica_id
        self.isolation = isolation
        self.or_follower = or_follower
        self.rack_id = rack_id
        self.listener = listener
        self.is_first_reading = True
        """Whether this is the first reading. Later reads of a waiting fetch give no new information about the follower."""
        self.finds_records = True
        """Whether records are read. Otherwise a reading only records progress and finds how much could be read."""
        self.may_wait = True
        """Whether lookups may wait for the disk."""
        self.now_ms = 0
        """Time of the reading, from `elapsed_ms`."""
        self.left = 0
        """Bytes that still fit into the answer."""
        self.size = 0
        """Bytes found so far."""
        self.min_one_batch = False
        """Whether the first batch is returned even if it is larger than `left`."""
        self.throttled_bytes = 0
        """Bytes that count towards the leader's quota if they are sent."""
        self.has_turn = False
        self.is_withheld = False
        """Whether the leader's quota held something back."""

    def begin(self, max_bytes: int, now_ms: int, min_one_batch: bool) -> None:
        """Start a new reading of all partitions."""
        self.left = max_bytes
        self.now_ms = now_ms
        self.min_one_batch = min_one_batch
        self.size = 0
        self.throttled_bytes = 0
        self.has_turn = False
        self.is_withheld = False

    def count(self, quota: ReplicationQuota) -> None:
        """Count the bytes that are sent towards the quota."""
        quota.count(self.throttled_bytes)
        if self.has_turn:
            quota.end_turn(self.replica_id)

    def end_offset(self, partition: Partition) -> int:
        """The first offset that the reader may not see."""
        log = partition.log
        if self.replica_id != CONSUMER:
            return log.log_end_offset
        return log.last_stable_offset if self.isolation == READ_COMMITTED else log.high_watermark

    def waiters(self, partition: Partition) -> Waiters:
        """The operations that wait until `end_offset` moves."""
        if self.replica_id != CONSUMER:
            return partition.end_waiters
        return partition.stable_waiters if self.isolation == READ_COMMITTED else partition.waiters


def read_one(replicas: ReplicaManager, partition: Partition, asked: AskedPartition, params: FetchParams) -> None:
    """Read one partition of a fetch, within the remaining bytes. The result is in `asked`.

    Raises the errors of the leader, epoch and replica checks, InconsistentTopicId, OffsetOutOfRange and other StorageErrors.
    Raises ColdRead unless the reading may wait for the disk, before anything has changed.
    """
    log = partition.log
    topic_id = asked.topic_id
    if topic_id not in (log.topic_id, ZERO_UUID) and log.topic_id != ZERO_UUID:
        raise InconsistentTopicId(f"a fetch session has an id of {partition.topic_partition} that is no longer its own")
    asked.end_offset = params.end_offset(partition)
    asked.region = None
    asked.aborted = None
    asked.preferred_read_replica = NO_PREFERENCE
    asked.diverging_epoch = NO_EPOCH
    if params.rack_id is not None and partition.is_leader:
        asked.preferred_read_replica = _preferred_read_replica(replicas, partition, asked, params)
    if asked.preferred_read_replica != NO_PREFERENCE:
        partition.check_leader_epoch(asked.leader_epoch)
    else:
        partition.check_leader(asked.leader_epoch, params.or_follower)
        if params.replica_id >= 0:
            partition.check_replica(params.replica_id, asked.leader_epoch)
        if asked.last_fetched_epoch == NO_EPOCH or not _has_parted(log, asked):
            _find_records(replicas, partition, asked, params)
    asked.high_watermark = log.high_watermark
    asked.last_stable_offset = log.last_stable_offset
    asked.log_start_offset = log.log_start_offset
    note_end(log, asked)


def cut_first_batch(log: PartitionLog, asked: AskedPartition, params: FetchParams) -> None:
    """Take the start of a batch that is larger than the limit, for a consumer to whom the limit is hard.

    By a message that is cut off it learns that it has to ask for more. Without one it would take the log to end here. Raises the errors of
    `read_one`.
    """
    limit = asked.max_bytes if asked.max_bytes < params.left else params.left
    if limit <= 0 or params.replica_id >= 0 or not params.finds_records:
        return
    found = log.read(asked.offset, limit, asked.end_offset, True, params.may_wait)
    whole = found.region
    if whole is not None:
        asked.region = whole.cut(limit)
        params.size += limit
        params.left -= limit


def note_end(log: PartitionLog, asked: AskedPartition) -> None:
    """Remember the size of the log up to `end_offset`, to find its growth later."""
    if asked.end_offset == log.log_end_offset:
        asked.open_segment = segment = log.segments.active
        asked.open_size = segment.size
    else:
        asked.open_segment = None


def _find_records(replicas: ReplicaManager, partition: Partition, asked: AskedPartition, params: FetchParams) -> None:
    log = partition.log
    offset = asked.offset
    region: FileRegion | None = None
    found: FetchSlice | None = None
    max_bytes = asked.max_bytes if asked.max_bytes < params.left else params.left
    if params.finds_records:
        found = log.read(offset, max_bytes, asked.end_offset, params.min_one_batch, params.may_wait)
        region = found.region
    else:
        log.check_offset(offset)
    if params.replica_id >= 0:
        if params.is_first_reading:
            partition.on_follower_fetch(params.replica_id, offset, asked.start, params.now_ms)
        quota = replicas.leader_quota
        if region is not None and quota is not None and quota.is_limited and not _passes(quota, partition, params, region.length):
            region = None
    elif params.isolation == READ_COMMITTED:
        asked.aborted = ()
        if found is not None and region is not None:
            found, aborted = with_aborted(log, found, offset, max_bytes, params.min_one_batch, params.may_wait)
            asked.aborted = [(each.producer_id, each.first_offset) for each in aborted]
            region = found.region
    if region is not None:
        asked.region = region
        size = region.length
        params.size += size
        params.left = params.left - size if size < params.left else 0
        params.min_one_batch = False


def _passes(quota: ReplicationQuota, partition: Partition, params: FetchParams, size: int) -> bool:
    """Whether a follower may have these bytes now. One in sync always may, otherwise it would leave the ISR.

    In its turn, a follower that is behind may have all requested bytes until they exceed the quota.
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


def _preferred_read_replica(replicas: ReplicaManager, partition: Partition, asked: AskedPartition, params: FetchParams) -> int:
    if replicas.replica_selector is None or params.rack_id is None:
        return NO_PREFERENCE
    return preferred_read_replica(
        partition, replicas.cluster, replicas.replica_selector, params.rack_id, params.listener, asked.offset, params.now_ms
    )


def _has_parted(log: PartitionLog, asked: AskedPartition) -> bool:
    """Whether the reader's log diverges from this one (KIP-595 for followers, KIP-320 for consumers). Raises OffsetOutOfRange."""
    if asked.last_fetched_epoch == log.latest_epoch and asked.offset <= log.log_end_offset:
        return False
    epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch == NO_EPOCH or end_offset == -1 or asked.offset < log.log_start_offset:
        raise OffsetOutOfRange(log.topic_partition, asked.offset, log.log_start_offset, log.log_end_offset)
    if epoch < asked.last_fetched_epoch or end_offset < asked.offset:
        asked.diverging_epoch = epoch
        asked.diverging_end_offset = end_offset
        return True
    return False
