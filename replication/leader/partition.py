"""Implements one partition hosted by this broker: its role, its epochs, its ISR and its high watermark.

Called by `ReplicaManager` (roles) and by the Produce, Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords handlers. Invariants:

* The high watermark never exceeds the log end offset. It never goes back within a leader epoch, and stops below min.insync.replicas.
* Only a leader appends client records, stamped with its epoch.
* The high watermark waits for the *maximal* ISR, which includes members that the controller has not confirmed yet. It also waits for live
  replicas outside that are caught up, or they could never be added (KIP-497). `isr` proposes changes of the ISR.
* While the ISR has a member that is no longer a replica, and so fetches nothing, nothing is committed.
"""

from __future__ import annotations

from ottla.config.topic import CLEANUP_POLICY, MIN_INSYNC_REPLICAS
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from ottla.protocol.records.batch import CURRENT_MAGIC
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    RecordsNotDeletable,
    ReplicaStorageFailure,
    UnknownLeaderEpoch,
    UnknownReplica,
)
from ottla.replication.leader.isr import IsrChanges
from ottla.replication.leader.progress import IdleFetches, ReplicaProgress
from ottla.replication.ports.isr_proposals import IsrProposal
from ottla.replication.ports.topic_stats import TopicStats
from ottla.replication.ports.waiters import Waiters
from ottla.storage.errors import LogBeingTruncated, OffsetOutOfRange
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers.verification import VerificationStateEntry
from ottla.storage.validation.run import BatchRun

HIGH_WATERMARK = -1
"""Offset in DeleteRecords that stands for the high watermark."""


class Partition:
    """A replica on this broker. `is_leader` and `log` are plain attributes because Produce and Fetch read them per request."""

    __slots__ = (
        "_isr_changes",
        "adding_replicas",
        "broker_id",
        "controller_epoch",
        "effective_min_isr",
        "end_waiters",
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
        "stable_waiters",
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
        """`stats` are the topic's. Without them the partition has its own counters."""
        self.broker_id = broker_id
        self.topic_partition = topic_partition
        self.log = log
        self.is_online = True
        self.has_failed = False
        """Whether the partition is offline because its log directory failed."""
        self.is_leader = False
        self.is_cut_off = False
        """Whether another broker may lead the partition without this broker's knowledge (see `isolation`)."""
        self.is_named_by_id = True
        """Whether the controller uses the topic id. After a return to an old protocol version it does not, and leaders know no ids."""
        self.leader_id = -1
        self.leader_epoch = -1
        self.leader_epoch_start_offset: int | None = None
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.isr: tuple[int, ...] = ()
        """The in-sync replicas that the controller confirmed, in its order. Empty on a follower."""
        self.maximal_isr: tuple[int, ...] = ()
        """The ISR and replicas that the controller may have added already. All of them must have a record before it is committed."""
        self.isr_change: IsrProposal | None = None
        """The change of the ISR in flight."""
        self.has_departing_member = False
        """Whether an ISR member is no longer a replica. A reassignment removes it from the ISR last; until then it may be elected."""
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.followers: dict[int, ReplicaProgress] = {}
        self.end_waiters = Waiters()
        """Operations that wait for the log end offset."""
        self.waiters = Waiters()
        """Operations that wait for the high watermark, for a flush, or for the followers."""
        self.stable_waiters = Waiters()
        """Operations that wait for the last stable offset. While a transaction is open, no append costs them anything."""
        self.idle_fetches: dict[IdleFetches, None] = {}
        """Idle fetches of clients that have all records and all news, in the order in which they became idle."""
        self.stats = TopicStats() if stats is None else stats
        self.effective_min_isr = 1
        self._isr_changes = isr_changes

    @property
    def topic_id(self) -> bytes:
        """The topic's id; ZERO_UUID while the log has none."""
        return self.log.topic_id

    @property
    def fetched_topic_id(self) -> bytes:
        """Topic id in fetches from the leader; ZERO_UUID to use the name."""
        return self.log.topic_id if self.is_named_by_id else ZERO_UUID

    # -- roles ---------------------------------------------------------------------------------------------------------

    def become_leader(self, state: LeaderAndIsrPartitionState, now_ms: int) -> bool:
        """Lead in `state.leader_epoch`. Returns whether this broker did not lead before. `now_ms` is the time of `elapsed_ms`.

        A new epoch starts at the log end offset. A state older than the known partition epoch is ignored.
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
        # The ISR may have shrunk to this broker. Requests that wait for another reason (an offset, an epoch) check again, too.
        self.maybe_advance_high_watermark()
        self.notify_all()
        return is_new_leader

    def become_follower(self, state: LeaderAndIsrPartitionState) -> bool:
        """Follow `state.leader`. Returns whether a new leader epoch began. Waiting requests are answered with NotLeaderOrFollower.

        A state older than the known partition epoch is ignored.
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self.followers = {}
        self._take(state, ())  # only a leader knows the replicas in sync
        self.leader_id = state.leader
        self.is_leader = False
        self.leader_epoch_start_offset = None
        self.notify_all()
        return is_new_epoch

    def _take(self, state: LeaderAndIsrPartitionState, isr: tuple[int, ...]) -> None:
        self.controller_epoch = state.controller_epoch
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.adding_replicas = tuple(state.adding_replicas)
        self.removing_replicas = tuple(state.removing_replicas)
        self._set_isr(isr)
        self.is_cut_off = False  # the controller has just sent a request
        self.on_config_change()

    def take_offline(self) -> None:
        """Stop serving the replica, which was deleted or whose directory failed. The caller must call `notify_all`."""
        self.is_online = False
        self.is_leader = False
        self.leader_id = -1
        self.withdraw_isr_change()  # otherwise it might be proposed forever, and block the next partition of this name
        self.end_idle_fetches()

    def notify_all(self) -> None:
        """Let every waiting operation check again, after a change of more than an offset."""
        self.end_idle_fetches()
        self.end_waiters.notify()
        self.waiters.notify()
        self.stable_waiters.notify()

    def count_idle_fetches(self) -> None:
        """Bring `stats` up to date with the idle fetches."""
        for idle in self.idle_fetches:
            idle.count()

    def end_idle_fetches(self) -> None:
        """End all idle fetches, because their answers may change. Each client's next fetch visits the partition; waiting ones need not."""
        for idle in list(self.idle_fetches):
            idle.end()

    def set_cut_off(self, is_cut_off: bool) -> None:
        """Refuse or accept records that other replicas must have. On a change, waiting requests are answered."""
        if is_cut_off != self.is_cut_off:
            self.is_cut_off = is_cut_off
            self.notify_all()

    def on_config_change(self) -> None:
        """Apply the log's configuration or the number of replicas. min.insync.replicas is limited to the number of replicas."""
        self.effective_min_isr = min(self.log.config[MIN_INSYNC_REPLICAS], len(self.followers) + 1)
        self.end_idle_fetches()  # old clients do not support every compression type

    # -- the ISR (proposed by `isr`) -------------------------------------------------------------------------------------

    def confirm_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Apply the ISR that the controller set or confirmed."""
        self._set_isr(isr)
        self.partition_epoch = partition_epoch

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = self.maximal_isr = isr
        self.isr_change = None
        self.end_idle_fetches()  # a replica outside the ISR may be added at its next fetch
        self.has_departing_member = any(member != self.broker_id and member not in self.followers for member in isr)

    def withdraw_isr_change(self) -> None:
        """Return to the confirmed ISR, because the change in flight was not carried out."""
        self.maximal_isr = self.isr
        self.isr_change = None

    @property
    def replication_factor(self) -> int:
        """The intended number of replicas, without those that a reassignment is adding."""
        return len(self.replicas) - len(self.adding_replicas)

    @property
    def is_reassigning(self) -> bool:
        """Whether this broker leads the partition during a reassignment."""
        return self.is_leader and bool(self.adding_replicas or self.removing_replicas)

    # -- the leader's data path ----------------------------------------------------------------------------------------

    def append(self, run: BatchRun, required_acks: int, now_ms: int, origin: int) -> None:
        """Append the batch that was read of `run`, and move the high watermark if no other replica has to confirm.

        The run reports its offsets, or that it needs a worker first; then nothing is done. Raises NotLeaderOrFollower, NotEnoughReplicas,
        and the errors of `PartitionLog.append`.
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
        self.on_log_end_moved()
        if not self.followers and not self.has_departing_member:
            self.move_high_watermark(log.log_end_offset)
        elif len(self.maximal_isr) == 1:  # otherwise it moves when the others have the records
            self.maybe_advance_high_watermark()

    def on_log_end_moved(self) -> None:
        """Notify the fetches that read up to the log end offset, after an append."""
        if self.idle_fetches:
            self.end_idle_fetches()
        if self.end_waiters.waiting:
            self.end_waiters.notify()

    def move_high_watermark(self, offset: int) -> bool:
        """Move it to `offset`, and notify those who wait for it or for the last stable offset. Returns whether it moved."""
        log = self.log
        stable_offset: int = log.last_stable_offset
        if not log.update_high_watermark(offset):
            return False
        if self.idle_fetches:
            self.end_idle_fetches()
        if self.waiters.waiting:
            self.waiters.notify()
        if self.stable_waiters.waiting and log.last_stable_offset != stable_offset:
            self.stable_waiters.notify()
        return True

    def begin_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, raises_epochs: bool = False
    ) -> VerificationStateEntry | None:
        """See PartitionLog.begin_verification. Raises NotLeaderOrFollower, LogBeingTruncated, InvalidProducerEpoch."""
        self.check_may_append(1)  # with acks=all the append itself checks the ISR
        return self.log.begin_verification(producer_id, sequence, producer_epoch, raises_epochs)

    def check_may_append(self, required_acks: int) -> None:
        """Check whether a producer with these acks may append. Raises NotLeaderOrFollower, NotEnoughReplicas."""
        if not self.is_leader:
            raise self._led_elsewhere()
        if required_acks == -1 and (self.is_cut_off or len(self.isr) < self.effective_min_isr):
            if self.is_cut_off:
                raise self._led_elsewhere()
            raise NotEnoughReplicas(self.topic_partition, len(self.isr), self.effective_min_isr)

    def is_acknowledged(self, end_offset: int, required_acks: int) -> bool:
        """Whether the records below `end_offset` are as safe as a producer with these acks requires. False while they can become so.

        Raises ReplicaStorageFailure, NotLeaderOrFollower, NotEnoughReplicasAfterAppend, but never in the turn of the loop that appended.
        """
        if not self.is_leader:
            if self.has_failed:
                raise ReplicaStorageFailure(self.topic_partition)
            raise self._led_elsewhere()
        if not self.log.flushes.covers(end_offset):
            return False
        if required_acks != -1:
            return True
        if self.log.high_watermark < end_offset:
            if self.is_cut_off:
                raise self._led_elsewhere()
            return False
        if len(self.maximal_isr) < self.effective_min_isr:
            raise NotEnoughReplicasAfterAppend(self.topic_partition, len(self.maximal_isr), self.effective_min_isr)
        return True

    def check_kept(self, leader_epoch: int, end_offset: int) -> None:
        """Check that the log still has what was appended in that epoch below `end_offset`.

        A request that does not wait for the partition yet is not told that another broker led it meanwhile, when this one cut its log. Logs
        of old formats know no epochs. Raises NotLeaderOrFollower.
        """
        log = self.log
        if log.rules.magic == CURRENT_MAGIC:
            epoch, end = log.end_offset_for_epoch(leader_epoch)
            if epoch < leader_epoch or end < end_offset:
                raise self._led_elsewhere()

    def maybe_advance_high_watermark(self) -> bool:
        """Move the high watermark up to the smallest end offset of the required replicas. Returns whether it moved."""
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
        return new_high_watermark > high_watermark and self.move_high_watermark(new_high_watermark)

    def on_follower_fetch(self, broker_id: int, fetch_offset: int, follower_start_offset: int, now_ms: int) -> None:
        """Record that a follower, checked by `check_replica`, fetched from `fetch_offset`. It has all records below, and may join the ISR.

        `now_ms` is the time of `elapsed_ms`.
        """
        log = self.log
        progress = self.followers[broker_id]
        deleted_more = follower_start_offset > progress.log_start_offset
        progress.on_fetch(fetch_offset, follower_start_offset, log.log_end_offset, now_ms)
        if broker_id not in self.isr and self.isr_change is None:
            self._isr_changes.maybe_expand(self, progress)
        has_moved = log.high_watermark < log.log_end_offset and self.maybe_advance_high_watermark()
        if deleted_more and not has_moved:
            self.waiters.notify()

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to `offset`, where -1 stands for the high watermark. Returns the offset.

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
        """The smallest log start offset of all live replicas."""
        low_watermark = self.log.log_start_offset
        for broker_id, progress in self.followers.items():
            if progress.log_start_offset < low_watermark and broker_id in self._isr_changes.cluster.brokers:
                low_watermark = progress.log_start_offset
        return low_watermark

    # -- checks of all requests ------------------------------------------------------------------------------------------

    def check_replica(self, broker_id: int, asked_epoch: int) -> None:
        """Check that the broker is another replica of the partition. Raises UnknownLeaderEpoch if it gave an epoch, else UnknownReplica."""
        if broker_id in self.followers:
            return
        if asked_epoch != -1:
            # It may have become a replica in this epoch before this broker was informed, so it should retry.
            raise UnknownLeaderEpoch(self.topic_partition, asked_epoch, self.leader_epoch)
        raise UnknownReplica(f"broker {broker_id} is no replica of {self.topic_partition} ({self.replicas})")

    def is_current(self, asked_epoch: int) -> bool:
        """Whether a request with this epoch (-1: none) is meant for the current one."""
        return asked_epoch in (-1, self.leader_epoch)

    def serves(self, asked_epoch: int, or_follower: bool) -> bool:
        """Whether this broker leads the partition in the given epoch, or follows and `or_follower` is set (KIP-392)."""
        return self.is_current(asked_epoch) and (self.is_leader or (or_follower and self.is_online))

    def check_leader_epoch(self, asked: int) -> None:
        """Compare the epoch of a request (-1: none) with the current one. Raises FencedLeaderEpoch, UnknownLeaderEpoch."""
        if self.is_current(asked):
            return
        if asked < self.leader_epoch:
            raise FencedLeaderEpoch(self.topic_partition, asked, self.leader_epoch)
        raise UnknownLeaderEpoch(self.topic_partition, asked, self.leader_epoch)

    def check_leader(self, asked_epoch: int = -1, or_follower: bool = False) -> PartitionLog:
        """The log, if this broker `serves` the epoch. Raises the epoch errors, NotLeaderOrFollower, LogBeingTruncated."""
        if not self.serves(asked_epoch, or_follower):
            self.check_leader_epoch(asked_epoch)
            raise self._led_elsewhere()
        if self.log.truncations.current is not None:
            raise LogBeingTruncated(self.topic_partition)
        return self.log

    def check_offset_is_available(self) -> None:
        """Check that the high watermark has reached the start of the epoch. Before that a leader must not answer "latest" (KIP-207).

        Raises OffsetNotAvailable.
        """
        start = self.leader_epoch_start_offset
        if start is not None and start > self.log.high_watermark:
            raise OffsetNotAvailable(f"{self.topic_partition}: high watermark {self.log.high_watermark} is below the epoch's start {start}")

    def _led_elsewhere(self) -> NotLeaderOrFollower:
        return NotLeaderOrFollower(*self.topic_partition, self.leader_id, self.leader_epoch)
