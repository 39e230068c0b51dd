"""All partitions of this broker, and the controller's requests about them: LeaderAndIsr, StopReplica, UpdateMetadata.

The request handlers look partitions up here; the controller reaches it through its channel. The high watermarks of all partitions
are checkpointed per log directory (`replication-offset-checkpoint`), so that a restart does not have to start at zero.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.uuid import ZERO_UUID
from replication.control import failed_log_dirs, log_dir_moves, metadata_updates, stopped_replicas
from replication.control.controller_requests import (
    LeaderAndIsrAnswer,
    NamedState,
    named_states,
    say_not_followed,
)
from replication.errors import InconsistentTopicId, NotLeaderOrFollower, ReplicaStorageFailure, UnknownTopicOrPartition
from replication.leader.followers import Followers, NoFollowers, hand_over
from replication.leader.isr import IsrChanges
from replication.leader.partition import Partition
from replication.ports.cluster import MetadataCache
from replication.ports.isr_proposals import IsrProposals
from replication.ports.replica_selector import ReplicaSelector
from replication.ports.thread_work import done
from replication.ports.throttle import ReplicationQuota
from replication.ports.topic_stats import BrokerTopicStats
from storage.disk.clock import Clock, elapsed_ms
from storage.disk.topic_partition import TopicPartition
from storage.disk.turns import in_turns
from storage.errors import LogDirFailure, LogUnusable
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from storage.manager.new_logs import NewLog

logger = logging.getLogger(__name__)

PARTITIONS_PER_TURN = 15
"""What is taken in in a turn of the event loop while a request is worked off."""

REPLICA_LAG_TIME_MAX_MS = 30_000
"""Kafka's default of replica.lag.time.max.ms."""

LOOKED_AT_PER_TURN = 500
"""Partitions whose ISR is as it should be cost half a microsecond."""


class ReplicaManager:
    """The partitions of one broker, by topic and index."""

    __slots__ = (
        "_clock",
        "_not_followed",
        "_to_follow",
        "answers",
        "broker_id",
        "cluster",
        "controller_epoch",
        "followers",
        "isr_changes",
        "leader_quota",
        "leadership_listeners",
        "log_manager",
        "metadata_changes",
        "offline",
        "on_partitions_deleted",
        "on_replicas_offline",
        "partitions",
        "replica_selector",
        "topic_stats",
    )

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        cluster: MetadataCache,
        clock: Clock,
        replica_lag_time_max_ms: int = REPLICA_LAG_TIME_MAX_MS,
        followers: Followers | None = None,
        isr_proposals: IsrProposals | None = None,
    ) -> None:
        """Without `followers` and `isr_proposals` the broker is alone; both may be set later, before the controller first speaks."""
        self.broker_id = broker_id
        self.cluster = cluster
        self.controller_epoch = 0
        self.metadata_changes = asyncio.Lock()
        """Held by whoever changes `cluster`."""
        self.partitions: dict[str, dict[int, Partition]] = {}
        self.offline: set[TopicPartition] = set()
        self.topic_stats = BrokerTopicStats()
        self.followers: Followers = NoFollowers() if followers is None else followers
        self.isr_changes = IsrChanges(cluster, clock, replica_lag_time_max_ms, isr_proposals)
        self.leader_quota: ReplicationQuota | None = None
        """What bounds the data that followers of throttled replicas get from here."""
        self.leadership_listeners: list[Callable[[Partition], None]] = []
        """Told of a partition after it became leader or follower here, or went away: the coordinators take over and let go by it."""
        self.on_replicas_offline: Callable[[], None] = lambda: None
        """Told after a failed directory took partitions with it: the controller has to learn of it."""
        self.on_partitions_deleted: Callable[[list[TopicPartition]], None] = lambda partitions: None
        """Told which partitions the controller deleted: their committed offsets are of no use any more."""
        self.log_manager = log_manager
        self._clock = clock
        self.replica_selector: ReplicaSelector | None = None
        """Where consumers should read (KIP-392); None: from the leader."""
        self.answers: list[LeaderAndIsrAnswer] = []
        """To those LeaderAndIsr that are being worked off: several, when a connection broke or the session ended meanwhile."""
        self._to_follow: dict[TopicPartition, Partition] = {}
        """Became followers in a request that is still being worked off."""
        self._not_followed: dict[int, list[TopicPartition]] = {}
        """By leader, those of that request that nobody leads who is known here."""
        log_manager.moves.on_replaced = self._on_log_replaced
        log_manager.flusher.on_flushed = self._on_flushed
        log_manager.context.on_log_start_offset = self._on_log_changed
        log_manager.on_truncated = self._on_log_changed

    @property
    def isr_proposals(self) -> IsrProposals:
        """The way to the controller."""
        return self.isr_changes.proposals

    @isr_proposals.setter
    def isr_proposals(self, proposals: IsrProposals) -> None:
        self.isr_changes.proposals = proposals

    on_log_dir_failure = failed_log_dirs.on_log_dir_failure
    alter_log_dirs = log_dir_moves.alter_log_dirs
    on_update_metadata = metadata_updates.on_update_metadata
    forget_topics = metadata_updates.forget_topics
    on_stop_replica = stopped_replicas.on_stop_replica

    # -- lookup --------------------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition if it is hosted here; None otherwise."""
        of_topic = self.partitions.get(topic)
        return of_topic.get(index) if of_topic is not None else None

    def partition_or_raise(self, topic: str, index: int) -> Partition:
        """The partition hosted here.

        Raises ReplicaStorageFailure when its directory is offline, NotLeaderOrFollower when other brokers host it,
        UnknownTopicOrPartition when nobody does.
        """
        partition = self.partition(topic, index)
        if partition is not None:
            return partition
        if TopicPartition(topic, index) in self.offline:
            raise ReplicaStorageFailure(TopicPartition(topic, index))
        known = self.cluster.partition(topic, index)
        if known is not None:
            raise NotLeaderOrFollower(topic, index, known.leader, known.leader_epoch)
        raise UnknownTopicOrPartition(topic, index)

    def __iter__(self) -> Iterator[Partition]:
        for of_topic in self.partitions.values():
            yield from of_topic.values()

    # -- the controller's requests ---------------------------------------------------------------------------------------

    async def on_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """LeaderAndIsr (api 4): become leader or follower of the named partitions, making their logs when they are new.

        Those that become followers begin to fetch together at the end, also when a new controller ends the request early.
        """
        answer = LeaderAndIsrAnswer()
        self.answers.append(answer)
        try:
            return await self._apply_all(request, answer)
        finally:
            self.answers.remove(answer)
            say_not_followed(self._not_followed)
            await hand_over(self._to_follow, self.followers)

    async def _apply_all(self, request: LeaderAndIsrRequest, answer: LeaderAndIsrAnswer) -> LeaderAndIsrResponse:
        deposed = LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        if self.is_deposed(request):
            return deposed
        states = named_states(request)
        while turn := list(islice(states, PARTITIONS_PER_TURN)):
            await done(partial(self.log_manager.new_logs.make, self._new_logs(turn)))
            if self.is_deposed(request):  # a new controller may have spoken meanwhile
                return deposed
            for each in turn:
                answer.add(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if answer.is_over(each) else self._apply(*each))
            if len(turn) == PARTITIONS_PER_TURN:
                await asyncio.sleep(0)
                if self.is_deposed(request):
                    return deposed
        return answer.response()

    def _new_logs(self, states: Iterable[NamedState]) -> list[NewLog]:
        """Those that these states need and that may not be there yet."""
        return [
            NewLog(TopicPartition(topic, state.partition_index), topic_id, state.is_new)
            for topic, topic_id, state in states
            if self.partition(topic, state.partition_index) is None and self.broker_id in state.replicas
        ]

    def is_deposed(self, request: UpdateMetadataRequest | LeaderAndIsrRequest | StopReplicaRequest) -> bool:
        """Whether a newer controller than the sender of the request has spoken; remembers the sender's epoch otherwise."""
        if request.controller_epoch >= self.controller_epoch:
            self.controller_epoch = request.controller_epoch
            return False
        logger.warning(
            "refused %s of controller %d: its epoch %d is older than %d",
            type(request).__name__, request.controller_id, request.controller_epoch, self.controller_epoch,
        )  # fmt: skip
        return True

    def _apply(self, topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> ErrorCode:
        """Take one partition's state; the error code for the controller."""
        topic_partition = TopicPartition(topic, state.partition_index)
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partition(topic, state.partition_index)
        try:
            if partition is not None:
                if topic_id != ZERO_UUID and partition.topic_id not in (ZERO_UUID, topic_id):
                    logger.error("%s: LeaderAndIsr is about another topic of that name; the log stays as it is", topic_partition)
                    return ErrorCode.INCONSISTENT_TOPIC_ID
                if state.leader_epoch <= partition.leader_epoch:
                    return self._repeated(partition, topic_id, state)
            if self.broker_id not in state.replicas:
                logger.warning("LeaderAndIsr names %s, whose replicas %s are on other brokers", topic_partition, state.replicas)
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                partition = self._host(topic_partition, topic_id, is_new=state.is_new)
            partition.is_named_by_id = topic_id != ZERO_UUID
            if state.leader == self.broker_id:
                self.unfollow(topic_partition)
                partition.become_leader(state, elapsed_ms(self._clock))
                self._tell(partition)
            elif state.leader in self.cluster.brokers:
                # Whoever is fetched from until now is no leader any more: nothing of it may come in once the new epoch is known.
                self.unfollow(topic_partition)
                if partition.become_follower(state):
                    self._to_follow[topic_partition] = partition
                self._tell(partition)
            else:
                # The log is there, so that its high watermark is written down; its state stays what it was, and a repetition is taken.
                self._not_followed.setdefault(state.leader, []).append(topic_partition)
            self.log_manager.moves.start(topic_partition)
        except LogDirFailure as failure:
            self.on_log_dir_failure(failure.log_dir, failure.what)
            self.offline.add(topic_partition)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except LogUnusable as error:
            logger.error("%s", error)
            self.offline.add(topic_partition)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except InconsistentTopicId as error:
            logger.error("%s", error)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.NONE

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Whoever leads the partition, nothing is fetched of it."""
        self._to_follow.pop(topic_partition, None)
        self.followers.unfollow((topic_partition,))

    def _tell(self, partition: Partition) -> None:
        for listener in self.leadership_listeners:
            listener(partition)

    def _repeated(self, partition: Partition, topic_id: bytes, state: LeaderAndIsrPartitionState) -> ErrorCode:
        """A state of a leader epoch that is known or over. In the current one the controller may only say, or take back, the topic id."""
        if state.leader_epoch == partition.leader_epoch:
            if topic_id != ZERO_UUID and partition.topic_id == ZERO_UUID:
                self.log_manager.get_or_create(partition.topic_partition, topic_id)
            elif topic_id != ZERO_UUID or partition.topic_id == ZERO_UUID or state.leader == self.broker_id:
                return ErrorCode.STALE_CONTROLLER_EPOCH
            partition.is_named_by_id = topic_id != ZERO_UUID
            if not partition.is_leader:
                self._to_follow[partition.topic_partition] = partition  # it is fetched by its id, or by its name, from now on
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _host(self, topic_partition: TopicPartition, topic_id: bytes, *, is_new: bool) -> Partition:
        """Begin to host a partition. Raises LogDirFailure, InconsistentTopicId."""
        log = self.log_manager.get_or_create(topic_partition, topic_id, is_new=is_new)
        if topic_id not in (ZERO_UUID, log.topic_id):
            raise InconsistentTopicId(f"{topic_partition}: the log in {log.directory} belongs to another topic of that name")
        stats = self.topic_stats.of(topic_partition.topic)
        partition = Partition(self.broker_id, topic_partition, log, self.isr_changes, stats)
        self.partitions.setdefault(topic_partition.topic, {})[topic_partition.partition] = partition
        return partition

    def remove(self, partition: Partition) -> None:
        """It is not hosted here any more."""
        self.hide(partition)
        self.let_go(partition)

    def hide(self, partition: Partition) -> None:
        """Nobody finds it, reads it or appends to it any more. `let_go` is to follow."""
        topic, index = partition.topic_partition
        partition.take_offline()
        del self.partitions[topic][index]
        if not self.partitions[topic]:
            del self.partitions[topic]
            self.topic_stats.forget(topic)

    def let_go(self, partition: Partition) -> None:
        """Whoever has to do with it learns that it was hidden."""
        self.unfollow(partition.topic_partition)
        partition.waiters.notify()
        self._tell(partition)

    # -- log directories -------------------------------------------------------------------------------------------------

    def _on_log_replaced(self, log: PartitionLog) -> None:
        """The log has moved to another directory: what is served from now on stands there."""
        partition = self.partition(*log.topic_partition)
        if partition is not None:
            partition.log = log
            partition.waiters.notify()

    def _on_flushed(self, log: PartitionLog) -> None:
        """More of a log is on the disk: producers may wait for that."""
        partition = self.partition(*log.topic_partition)
        if partition is not None:
            partition.waiters.notify()

    def _on_log_changed(self, log: PartitionLog) -> None:
        """A log begins or ends elsewhere: nobody waits for that, but those who fetch are to see it."""
        partition = self.partition(*log.topic_partition)
        if partition is not None:
            partition.end_idle_fetches()

    # -- the ISRs -----------------------------------------------------------------------------------------------------------

    def maybe_shrink_isrs(self, now_ms: int) -> None:
        """Propose to let followers go that lag behind, some partitions per turn of the loop. `now_ms` is that of `elapsed_ms`.

        To be called every half of `replica.lag.time.max.ms` (Kafka's isr-expiration): a follower leaves at the latest after one and a half
        times that.
        """
        look_at = partial(self.isr_changes.maybe_shrink, now_ms=now_ms)
        in_turns(self.log_manager.background, "isr-expiration", list(self), LOOKED_AT_PER_TURN, look_at, lambda: None)

    # -- disk and configuration ------------------------------------------------------------------------------------------

    def on_config_change(self, log: PartitionLog) -> None:
        """A log has a new configuration."""
        partition = self.partition(*log.topic_partition)
        if partition is not None:
            partition.on_config_change()

    def checkpoint_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint` in every live directory."""
        self.log_manager.checkpoint_high_watermarks()
