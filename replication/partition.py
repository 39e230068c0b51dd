"""One partition hosted by this broker: its role, its epochs, its ISR and its high watermark.

Called by `ReplicaManager` (roles) and by the Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords handlers. Invariants:
* high watermark <= log end offset; it never goes back within a leader epoch;
* only a leader appends client records, stamped with its epoch;
* the high watermark counts the *maximal* ISR: members that the controller has not confirmed yet hold it back already.
"""

from __future__ import annotations

import logging

from config.topic import MIN_INSYNC_REPLICAS
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from replication.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
    UnknownReplica,
)
from replication.progress import ReplicaProgress
from replication.waiters import Waiters
from storage.errors import OffsetOutOfRange
from storage.log_append import Appended
from storage.partition_log import PartitionLog
from storage.topic_partition import TopicPartition
from storage.validation import ValidatedBatch

HIGH_WATERMARK = -1
"""The offset by which DeleteRecords means the high watermark."""

logger = logging.getLogger(__name__)


class Partition:
    """A replica on this broker. `is_leader` and `log` are plain attributes because Produce and Fetch read them per request."""

    __slots__ = (
        "_alone",
        "broker_id",
        "controller_epoch",
        "followers",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "min_insync_replicas",
        "partition_epoch",
        "pending_isr",
        "replicas",
        "topic_id",
        "topic_partition",
        "waiters",
    )

    def __init__(self, broker_id: int, topic_partition: TopicPartition, topic_id: bytes, log: PartitionLog) -> None:
        self.broker_id = broker_id
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = -1
        self.leader_epoch_start_offset: int | None = None
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.isr: frozenset[int] = frozenset()
        self.pending_isr: frozenset[int] | None = None
        self.replicas: tuple[int, ...] = ()
        self.followers: dict[int, ReplicaProgress] = {}
        self.waiters = Waiters()
        self.min_insync_replicas = log.config[MIN_INSYNC_REPLICAS]
        self._alone = False

    # -- roles ---------------------------------------------------------------------------------------------------------

    def become_leader(self, state: LeaderAndIsrPartitionState, now_ms: int) -> bool:
        """Lead from `state.leader_epoch` on; True when this broker did not lead the partition before.

        A state with the current epoch only updates the ISR. The new epoch starts at the log end offset.
        """
        is_new_epoch = state.leader_epoch > self.leader_epoch
        is_new_leader = not self.is_leader
        self._take(state)
        self.leader_id = self.broker_id
        self.is_leader = True
        if is_new_epoch or is_new_leader:
            end_offset = self.log.log_end_offset
            self.leader_epoch_start_offset = end_offset
            self.log.on_new_leader_epoch(state.leader_epoch)
            for broker_id in self.replicas:
                if broker_id != self.broker_id:
                    progress = self.followers.setdefault(broker_id, ReplicaProgress(broker_id))
                    progress.reset(end_offset, now_ms, in_sync=broker_id in self.isr)
        for broker_id in list(self.followers):
            if broker_id not in self.replicas:
                del self.followers[broker_id]
        self.maybe_advance_high_watermark()
        self.waiters.notify()
        return is_new_leader

    def become_follower(self, state: LeaderAndIsrPartitionState) -> bool:
        """Follow `state.leader`; True when leader or epoch changed. What waits here is answered with NotLeaderOrFollower."""
        changed = self.is_leader or state.leader != self.leader_id or state.leader_epoch != self.leader_epoch
        self._take(state)
        self.leader_id = state.leader
        self.is_leader = False
        self.leader_epoch_start_offset = None
        self.followers.clear()
        self._alone = False
        self.waiters.notify()
        return changed

    def _take(self, state: LeaderAndIsrPartitionState) -> None:
        self.controller_epoch = state.controller_epoch
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.isr = frozenset(state.isr)
        self.pending_isr = None
        self._alone = self.isr == {self.broker_id}

    def resign(self) -> None:
        """The replica is stopped or its directory failed: nothing is served any more and nobody waits in vain."""
        self.is_leader = False
        self.leader_id = -1
        self._alone = False
        self.waiters.notify()

    # -- the leader's data path ----------------------------------------------------------------------------------------

    def append_as_leader(self, batch: ValidatedBatch, required_acks: int, now_ms: int) -> Appended:
        """Append one validated batch and move the high watermark if no other replica is to be waited for.

        Raises NotLeaderOrFollower, NotEnoughReplicas, and what PartitionLog.append_as_leader raises.
        """
        if not self.is_leader:
            raise NotLeaderOrFollower(*self.topic_partition, self.leader_id, self.leader_epoch)
        if required_acks == -1 and len(self.isr) < self.min_insync_replicas:
            raise NotEnoughReplicas(self.topic_partition, len(self.isr), self.min_insync_replicas)
        log = self.log
        appended = log.append_as_leader(batch, self.leader_epoch, now_ms)
        if self._alone:
            log.update_high_watermark(log.log_end_offset)
        else:
            self.maybe_advance_high_watermark()
        if self.waiters.waiting:
            self.waiters.notify()
        return appended

    def maybe_advance_high_watermark(self) -> bool:
        """Raise the high watermark to what every member of the maximal ISR has; True if it moved."""
        if not self.is_leader:
            return False
        end_offset = self.log.log_end_offset
        maximal = self.isr if self.pending_isr is None else self.isr | self.pending_isr
        for broker_id, progress in self.followers.items():
            if broker_id in maximal:
                end_offset = min(end_offset, progress.log_end_offset)
        return end_offset > self.log.high_watermark and self.log.update_high_watermark(end_offset)

    def check_replica(self, broker_id: int) -> None:
        """Raises UnknownReplica when the broker is none of the partition's other replicas."""
        if broker_id not in self.followers:
            raise UnknownReplica(f"broker {broker_id} is no replica of {self.topic_partition} ({self.replicas})")

    def on_follower_fetch(self, broker_id: int, fetch_offset: int, follower_start_offset: int, now_ms: int) -> None:
        """A follower, checked by `check_replica`, was served from `fetch_offset`."""
        self.followers[broker_id].on_fetch(fetch_offset, follower_start_offset, self.log.log_end_offset, now_ms)
        if self.maybe_advance_high_watermark():
            self.waiters.notify()

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to `offset` (-1: the high watermark); the offset that was meant.

        Raises NotLeaderOrFollower, OffsetOutOfRange beyond the high watermark or below zero.
        """
        log = self.check_leader()
        if offset == HIGH_WATERMARK:
            offset = log.high_watermark
        if offset < 0:
            raise OffsetOutOfRange(self.topic_partition, offset, log.log_start_offset, log.high_watermark)
        log.increment_log_start_offset(offset, "records were deleted by a client")
        return offset

    @property
    def low_watermark(self) -> int:
        """The log start offset of the replica that is furthest behind."""
        return min([self.log.log_start_offset, *(progress.log_start_offset for progress in self.followers.values())])

    # -- what every request to a partition checks ------------------------------------------------------------------------

    def check_leader_epoch(self, asked: int) -> None:
        """Compare the epoch in a request (-1: not given) with ours. Raises FencedLeaderEpoch, UnknownLeaderEpoch."""
        if asked in (-1, self.leader_epoch):
            return
        if asked < self.leader_epoch:
            raise FencedLeaderEpoch(self.topic_partition, asked, self.leader_epoch)
        raise UnknownLeaderEpoch(self.topic_partition, asked, self.leader_epoch)

    def check_leader(self, asked_epoch: int = -1) -> PartitionLog:
        """The log, if this broker leads the partition in the asked epoch. Raises NotLeaderOrFollower and the epoch errors."""
        self.check_leader_epoch(asked_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollower(*self.topic_partition, self.leader_id, self.leader_epoch)
        return self.log

    def check_offset_is_available(self) -> None:
        """A leader may not tell "latest" before its high watermark reached the start of its epoch (KIP-207).

        Raises OffsetNotAvailable.
        """
        start = self.leader_epoch_start_offset
        if start is not None and start > self.log.high_watermark:
            raise OffsetNotAvailable(f"{self.topic_partition}: high watermark {self.log.high_watermark} is below the epoch's start {start}")

    def on_config_change(self) -> None:
        """The log's effective configuration was replaced."""
        self.min_insync_replicas = self.log.config[MIN_INSYNC_REPLICAS]
