"""One partition hosted by this broker: its role, its epochs, its ISR and its high watermark.

Called by `ReplicaManager` (roles) and by the Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords handlers. Invariants:
* high watermark <= log end offset; it never goes back within a leader epoch, and stands still below min.insync.replicas;
* only a leader appends client records, stamped with its epoch;
* the high watermark counts the *maximal* ISR: members that the controller has not confirmed yet hold it back already, and so do
  live replicas outside that are caught up, or they could never come in (KIP-497). `isr` decides when a change of it is proposed;
* while the ISR has a member that is no replica any more, and fetches nothing, nothing is committed.
"""

from __future__ import annotations

from config.topic import CLEANUP_POLICY, MIN_INSYNC_REPLICAS
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from protocol.uuid import ZERO_UUID
from replication.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    RecordsNotDeletable,
    UnknownLeaderEpoch,
    UnknownReplica,
)
from replication.leader.isr import IsrChanges
from replication.leader.progress import IdleFetches, ReplicaProgress
from replication.ports.isr_proposals import IsrProposal
from replication.ports.topic_stats import TopicStats
from replication.ports.waiters import Waiters
from storage.disk.topic_partition import TopicPartition
from storage.errors import LogBeingTruncated, OffsetOutOfRange
from storage.log.partition_log import PartitionLog
from storage.producers.verification import VerificationStateEntry
from storage.validation.run import BatchRun

HIGH_WATERMARK = -1
"""The offset by which DeleteRecords means the high watermark."""


class Partition:
    """A replica on this broker. `is_leader` and `log` are plain attributes because Produce and Fetch read them per request."""

    __slots__ = (
        "_isr_changes",
        "adding_replicas",
        "broker_id",
        "controller_epoch",
        "effective_min_isr",
        "followers",
        "has_departing_member",
        "has_failed",
        "idle_fetches",
        "is_cut_off",
        "is_leader",
        "is_named_by_id",
        "is_online",
        "isr",
        "isr_change",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "maximal_isr",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "stats",
        "topic_partition",
        "waiters",
    )

    def __init__(
        self,
        broker_id: int,
        topic_partition: TopicPartition,
        log: PartitionLog,
        isr_changes: IsrChanges,
        stats: TopicStats | None = None,
    ) -> None:
        """`stats` are the topic's; without, the partition counts for itself."""
        self.broker_id = broker_id
        self.topic_partition = topic_partition
        self.log = log
        self.is_online = True
        self.has_failed = False
        """Whether it is offline because its log directory failed."""
        self.is_leader = False
        self.is_cut_off = False
        """Whether another broker may lead it without this one having heard of it (see `isolation`)."""
        self.is_named_by_id = True
        """Whether the controller does. After a step back to an old protocol it does not, and leaders know no ids."""
        self.leader_id = -1
        self.leader_epoch = -1
        self.leader_epoch_start_offset: int | None = None
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.isr: tuple[int, ...] = ()
        """The replicas in sync that the controller confirmed, in its order; none where this broker follows."""
        self.maximal_isr: tuple[int, ...] = ()
        """The ISR and those that may be in it already, for all the controller knows: who must have a record before it is committed."""
        self.isr_change: IsrProposal | None = None
        """The change of the ISR that is in flight."""
        self.has_departing_member = False
        """Whether somebody in the ISR is no replica any more: a reassignment takes it out of the ISR last; until then it may be elected."""
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.followers: dict[int, ReplicaProgress] = {}
        self.waiters = Waiters()
        self.idle_fetches: dict[IdleFetches, None] = {}
        """Those of clients that have all there is and were told all of it, in the order in which they became so."""
        self.stats = TopicStats() if stats is None else stats
        self.effective_min_isr = 1
        self._isr_changes = isr_changes

    @property
    def topic_id(self) -> bytes:
        """The topic's id; ZERO_UUID while the log has none."""
        return self.log.topic_id

    @property
    def fetched_topic_id(self) -> bytes:
        """By which its leader is asked for it; ZERO_UUID: by its name."""
        return self.log.topic_id if self.is_named_by_id else ZERO_UUID

    # -- roles ---------------------------------------------------------------------------------------------------------

    def become_leader(self, state: LeaderAndIsrPartitionState, now_ms: int) -> bool:
        """Lead in `state.leader_epoch`; True when this broker did not lead the partition before. `now_ms` is that of `elapsed_ms`.

        A new epoch starts at the log end offset. A state older than the partition epoch known here is passed over.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        is_new_leader = not self.is_leader
        is_new_epoch = state.leader_epoch > self.leader_epoch
        others = [broker_id for broker_id in state.replicas if broker_id != self.broker_id]
        self.followers = {broker_id: self.followers.get(broker_id) or ReplicaProgress(broker_id) for broker_id in others}
        self._take(state, tuple(state.isr))
        self.leader_id = self.broker_id
        self.is_leader = True
        if is_new_epoch:
            end_offset = self.log.log_end_offset
            self.leader_epoch_start_offset = end_offset
            self.log.on_new_leader_epoch(state.leader_epoch)
            for broker_id, progress in self.followers.items():
                progress.reset(end_offset, now_ms, is_new_leader=is_new_leader, in_sync=broker_id in self.isr)
        # The ISR may have shrunk to this broker; who waits on another account (its offset, its epoch) looks again, too.
        self.maybe_advance_high_watermark()
        self.waiters.notify()
        return is_new_leader

    def become_follower(self, state: LeaderAndIsrPartitionState) -> bool:
        """Follow `state.leader`; True when a new leader epoch began. What waits here is answered with NotLeaderOrFollower.

        A state older than the partition epoch known here is passed over.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self.followers = {}
        self._take(state, ())  # only a leader knows who is in sync
        self.leader_id = state.leader
        self.is_leader = False
        self.leader_epoch_start_offset = None
        self.waiters.notify()
        return is_new_epoch

    def _take(self, state: LeaderAndIsrPartitionState, isr: tuple[int, ...]) -> None:
        self.controller_epoch = state.controller_epoch
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.adding_replicas = tuple(state.adding_replicas)
        self.removing_replicas = tuple(state.removing_replicas)
        self._set_isr(isr)
        self.is_cut_off = False  # the controller has just spoken
        self.on_config_change()

    def take_offline(self) -> None:
        """The replica was deleted or its directory failed: nothing is served any more. Who waits for it (`waiters`) is to be notified."""
        self.is_online = False
        self.is_leader = False
        self.leader_id = -1
        self.withdraw_isr_change()  # or it might be asked for again and again, in the way of the next partition of this name
        self.end_idle_fetches()

    def count_idle_fetches(self) -> None:
        """Bring `stats` up to date."""
        for idle in self.idle_fetches:
            idle.count()

    def end_idle_fetches(self) -> None:
        """What clients find here may have changed: each is to look at its next fetch, though none that waits need look now."""
        for idle in list(self.idle_fetches):
            idle.end()

    def set_cut_off(self, is_cut_off: bool) -> None:
        """Whether records that other replicas must have are refused; who waits for them now is answered."""
        if is_cut_off != self.is_cut_off:
            self.is_cut_off = is_cut_off
            self.waiters.notify()

    def on_config_change(self) -> None:
        """The log's configuration or the number of replicas changed: no more replicas can be asked for than there are."""
        self.effective_min_isr = min(self.log.config[MIN_INSYNC_REPLICAS], len(self.followers) + 1)
        self.end_idle_fetches()  # old clients do not understand every compression type

    # -- the ISR: `isr` decides ------------------------------------------------------------------------------------------

    def confirm_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has changed the ISR, or found it to be so already."""
        self._set_isr(isr)
        self.partition_epoch = partition_epoch

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = self.maximal_isr = isr
        self.isr_change = None
        self.end_idle_fetches()  # who is not in the ISR may come in with its next fetch
        self.has_departing_member = any(member != self.broker_id and member not in self.followers for member in isr)

    def withdraw_isr_change(self) -> None:
        """The change in flight was not carried out: the confirmed ISR holds."""
        self.maximal_isr = self.isr
        self.isr_change = None

    @property
    def replication_factor(self) -> int:
        """How many replicas there are to be; those that a reassignment adds do not count yet."""
        return len(self.replicas) - len(self.adding_replicas)

    @property
    def is_reassigning(self) -> bool:
        """Whether this broker leads while replicas come or go."""
        return self.is_leader and bool(self.adding_replicas or self.removing_replicas)

    # -- the leader's data path ----------------------------------------------------------------------------------------

    def append(self, run: BatchRun, required_acks: int, now_ms: int, origin: int) -> None:
        """Append the one batch that was read of `run`, and move the high watermark if no other replica is to be waited for.

        The run says where it went, or that a worker has to look at it first; nothing is done then. Raises NotLeaderOrFollower,
        NotEnoughReplicas, and what PartitionLog.append raises.
        """
        self.check_may_append(required_acks)
        log = self.log
        log.append(run, self.leader_epoch, now_ms, origin)
        if run.needs_worker:
            return
        stats = self.stats
        stats.produce_requests += 1
        stats.messages_in += run.last_offset - run.first_offset + 1
        stats.bytes_in += run.size
        if not self.followers and not self.has_departing_member:
            log.commit_all()
        elif len(self.maximal_isr) == 1:  # with others in sync it moves when they have the records
            self.maybe_advance_high_watermark()
        if self.waiters.waiting:
            self.waiters.notify()

    def begin_verification(self, producer_id: int, sequence: int, producer_epoch: int) -> VerificationStateEntry | None:
        """See PartitionLog.begin_verification. Raises NotLeaderOrFollower."""
        if not self.is_leader:
            raise NotLeaderOrFollower(*self.topic_partition, self.leader_id, self.leader_epoch)
        return self.log.begin_verification(producer_id, sequence, producer_epoch)

    def check_may_append(self, required_acks: int) -> None:
        """Whether a producer with such acks may append here. Raises NotLeaderOrFollower, NotEnoughReplicas."""
        if not self.is_leader:
            raise NotLeaderOrFollower(*self.topic_partition, self.leader_id, self.leader_epoch)
        if required_acks == -1 and (self.is_cut_off or len(self.isr) < self.effective_min_isr):
            if self.is_cut_off:
                raise NotLeaderOrFollower(*self.topic_partition, self.leader_id, self.leader_epoch)
            raise NotEnoughReplicas(self.topic_partition, len(self.isr), self.effective_min_isr)

    def is_flushed(self, end_offset: int) -> bool:
        """Whether what was appended up to `end_offset` is on the disk, if `flush.messages` asks for that before it is acknowledged."""
        log = self.log
        return not log.recovery_point < end_offset <= log.flush_due_offset

    def maybe_advance_high_watermark(self) -> bool:
        """Raise the high watermark to what every replica has that must have it; True if it moved."""
        if not self.is_leader or len(self.isr) < self.effective_min_isr or self.has_departing_member:
            return False
        log = self.log
        log_end_offset = new_high_watermark = log.log_end_offset
        high_watermark = log.high_watermark
        maximal = self.maximal_isr
        for broker_id, progress in self.followers.items():
            end_offset = progress.log_end_offset
            if end_offset < new_high_watermark and (broker_id in maximal or self._isr_changes.may_come_in(progress, log_end_offset)):
                if end_offset <= high_watermark:
                    return False
                new_high_watermark = end_offset
        return new_high_watermark > high_watermark and log.update_high_watermark(new_high_watermark)

    def on_follower_fetch(self, broker_id: int, fetch_offset: int, follower_start_offset: int, now_ms: int) -> None:
        """A follower, checked by `check_replica`, was served from `fetch_offset`: it has everything below, and may belong into the ISR.

        `now_ms` is that of `elapsed_ms`.
        """
        log = self.log
        progress = self.followers[broker_id]
        deleted_more = follower_start_offset > progress.log_start_offset
        progress.on_fetch(fetch_offset, follower_start_offset, log.log_end_offset, now_ms)
        if broker_id not in self.isr and self.isr_change is None:
            self._isr_changes.maybe_expand(self, progress)
        if (log.high_watermark < log.log_end_offset and self.maybe_advance_high_watermark()) or deleted_more:
            self.waiters.notify()

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to `offset` (-1: the high watermark); the offset that was meant.

        Raises NotLeaderOrFollower, RecordsNotDeletable, OffsetOutOfRange beyond the high watermark or below zero.
        """
        log = self.check_leader()
        if "delete" not in log.config[CLEANUP_POLICY]:
            raise RecordsNotDeletable(f"{self.topic_partition} is compacted only: its records cannot be deleted by offset")
        if offset == HIGH_WATERMARK:
            offset = log.high_watermark
        if offset < 0:
            raise OffsetOutOfRange(self.topic_partition, offset, log.log_start_offset, log.high_watermark)
        log.increment_log_start_offset(offset, "records were deleted by a client")
        return offset

    @property
    def low_watermark(self) -> int:
        """The log start offset of the live replica that is furthest behind."""
        low_watermark = self.log.log_start_offset
        for broker_id, progress in self.followers.items():
            if progress.log_start_offset < low_watermark and broker_id in self._isr_changes.cluster.brokers:
                low_watermark = progress.log_start_offset
        return low_watermark

    # -- what every request to a partition checks ------------------------------------------------------------------------

    def check_replica(self, broker_id: int, asked_epoch: int) -> None:
        """Raises UnknownReplica when the broker is none of the partition's other replicas, UnknownLeaderEpoch if it gave the epoch."""
        if broker_id in self.followers:
            return
        if asked_epoch != -1:
            # In this very epoch it may have become a replica that we have not heard of: it shall ask again.
            raise UnknownLeaderEpoch(self.topic_partition, asked_epoch, self.leader_epoch)
        raise UnknownReplica(f"broker {broker_id} is no replica of {self.topic_partition} ({self.replicas})")

    def check_leader_epoch(self, asked: int) -> None:
        """Compare the epoch in a request (-1: not given) with ours. Raises FencedLeaderEpoch, UnknownLeaderEpoch."""
        if asked in (-1, self.leader_epoch):
            return
        if asked < self.leader_epoch:
            raise FencedLeaderEpoch(self.topic_partition, asked, self.leader_epoch)
        raise UnknownLeaderEpoch(self.topic_partition, asked, self.leader_epoch)

    def check_leader(self, asked_epoch: int = -1, or_follower: bool = False) -> PartitionLog:
        """The log, if this broker leads the partition in the asked epoch, or follows and that will do (KIP-392).

        Raises the epoch errors, NotLeaderOrFollower, LogBeingTruncated.
        """
        self.check_leader_epoch(asked_epoch)
        if not (self.is_leader or (or_follower and self.is_online)):
            raise NotLeaderOrFollower(*self.topic_partition, self.leader_id, self.leader_epoch)
        if self.log.truncation is not None:
            raise LogBeingTruncated(self.topic_partition)
        return self.log

    def check_offset_is_available(self) -> None:
        """A leader may not tell "latest" before its high watermark reached the start of its epoch (KIP-207).

        Raises OffsetNotAvailable.
        """
        start = self.leader_epoch_start_offset
        if start is not None and start > self.log.high_watermark:
            raise OffsetNotAvailable(f"{self.topic_partition}: high watermark {self.log.high_watermark} is below the epoch's start {start}")
