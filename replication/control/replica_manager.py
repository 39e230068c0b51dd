"""Holds all partitions of this broker, and applies the controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata.

Request handlers look up partitions here; the controller's channel delivers its requests. The high watermarks of all partitions are
checkpointed per log directory (`replication-offset-checkpoint`), so that they need not start at zero after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice

from ottla.pauses import begin, pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control import failed_log_dirs, former_topics, log_dir_moves, metadata_updates, stopped_replicas
from ottla.replication.control.controller_requests import (
    LeaderAndIsrAnswer,
    NamedState,
    log_not_followed,
    named_states,
)
from ottla.replication.errors import (
    InconsistentTopicId,
    NotLeaderOrFollower,
    ReplicaStorageFailure,
    ReplicationError,
    UnknownTopicOrPartition,
)
from ottla.replication.leader.followers import Followers, NoFollowers, follow_all
from ottla.replication.leader.isr import IsrChanges
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.cluster import MetadataCache, TopicImage
from ottla.replication.ports.isr_proposals import IsrProposals
from ottla.replication.ports.replica_selector import ReplicaSelector
from ottla.replication.ports.thread_work import done
from ottla.replication.ports.throttle import ReplicationQuota
from ottla.replication.ports.topic_stats import BrokerTopicStats
from ottla.storage.disk.clock import Clock, elapsed_ms
from ottla.storage.disk.rounds import visit_all
from ottla.storage.errors import LogDirFailure, StorageError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.manager.new_logs import NewLog

logger = logging.getLogger(__name__)

PARTITIONS_TOGETHER = 15
"""Partitions of a request whose missing logs a thread creates together."""

REPLICA_LAG_TIME_MAX_MS = 30_000
"""Kafka's default of replica.lag.time.max.ms."""


class ReplicaManager:
    """The partitions of one broker, by topic and index."""

    __slots__ = (
        "_clock",
        "_not_followed",
        "_to_follow",
        "answers",
        "broker_id",
        "cluster",
        "config_listeners",
        "controller_epoch",
        "deletion_listeners",
        "followers",
        "frees_names",
        "isr_changes",
        "leader_quota",
        "leadership_listeners",
        "log_manager",
        "metadata_changes",
        "offline",
        "on_replicas_offline",
        "partitions",
        "replica_selector",
        "reported_deletion_listeners",
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
        leader_quota: ReplicationQuota | None = None,
        *,
        replica_selector: ReplicaSelector | None = None,
        on_replicas_offline: Callable[[], None] = lambda: None,
        frees_names: bool = False,
    ) -> None:
        """Without `followers` and `isr_proposals` the broker is alone. `leader_quota` limits the data for followers of throttled replicas.

        `frees_names` says that a topic may be deleted, and another one of its name created, while this broker is away.
        """
        self.broker_id = broker_id
        self.frees_names = frees_names
        self.cluster = cluster
        self.controller_epoch = 0
        self.metadata_changes = asyncio.Lock()
        """Held during changes of `cluster`."""
        self.partitions: dict[str, dict[int, Partition]] = {}
        self.offline: dict[TopicPartition, bytes] = {}
        """The partitions that should be hosted and whose log directory has failed, with the ids of their topics."""
        self.topic_stats = BrokerTopicStats()
        self.followers: Followers = NoFollowers() if followers is None else followers
        self.isr_changes = IsrChanges(cluster, clock, replica_lag_time_max_ms, isr_proposals)
        self.leader_quota = leader_quota
        self.leadership_listeners: list[Callable[[Partition], None]] = []
        """Called with a partition that became leader or follower, or was removed. Coordinators load and unload their state then."""
        self.config_listeners: list[Callable[[Partition], None]] = []
        """Called with a partition whose log has a new configuration."""
        self.on_replicas_offline = on_replicas_offline
        """Called after the partitions of a failed directory went offline, to report that to the controller."""
        self.deletion_listeners: list[Callable[[list[TopicPartition]], Awaitable[None]]] = []
        """Called in order with the partitions that the controller deleted, so that their committed offsets are removed, for example. The
        metadata do not change before they are done."""
        self.reported_deletion_listeners: list[Callable[[list[TopicPartition]], Awaitable[None]]] = []
        """Called behind those if a controller reported the deletion. For what cannot be undone: a metadata store that does not have a topic
        may be an old copy."""
        self.log_manager = log_manager
        self._clock = clock
        self.replica_selector = replica_selector
        """Selects the replica that a consumer should read (KIP-392). None selects the leader."""
        self.answers: list[LeaderAndIsrAnswer] = []
        """Answers to unfinished LeaderAndIsr requests. There are several if a connection broke or the session ended meanwhile."""
        self._to_follow: dict[TopicPartition, Partition] = {}
        """Partitions that became followers in a request that is still being applied."""
        self._not_followed: dict[int, list[TopicPartition]] = {}
        """By leader id, partitions of that request whose leader is not known."""
        log_manager.moves.on_replaced = self._on_log_replaced
        log_manager.flusher.on_flushed = self._on_flushed
        log_manager.context.on_log_start_offset = self._on_log_start_offset
        log_manager.on_truncated = self._on_log_changed
        log_manager.on_log_dir_failure = self.on_log_dir_failure

    # -- log directories, metadata, stopped replicas ---------------------------------------------------------------------

    def on_log_dir_failure(self, log_dir: str, reason: str = "a disk error") -> None:
        """Take the partitions of a failed directory offline. The others are served on. A repeated call does nothing."""
        failed_log_dirs.on_log_dir_failure(self, log_dir, reason)

    async def alter_log_dirs(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, ReplicationError | StorageError | None]:
        """Begin to move each replica to its directory, or have a missing replica created there.

        A request for the current directory ends a move to another one. Returns the error of each replica, or None: InvalidTopicName,
        LogDirNotFound, LogDirFailure, and the errors of `partition_or_raise`.
        """
        return await log_dir_moves.alter_log_dirs(self, wanted)

    async def on_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Apply UpdateMetadata (api 6)."""
        return await metadata_updates.on_update_metadata(self, request)

    async def notify_deleted(self, partitions: list[TopicPartition], *, is_reported: bool) -> None:
        """Call the `deletion_listeners`, and then those of reported deletions if a controller reported this one."""
        for listener in self.deletion_listeners:
            await listener(partitions)
        if is_reported:
            for listener in self.reported_deletion_listeners:
                await listener(partitions)

    async def forget_topics(self, images: Iterable[TopicImage]) -> list[TopicImage]:
        """Forget topics whose deletion no controller reported. Topics with newer metadata stay; returns the forgotten ones."""
        return await metadata_updates.forget_topics(self, images)

    async def on_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Apply StopReplica (api 5): stop following partitions, and delete their logs if requested."""
        return await stopped_replicas.on_stop_replica(self, request)

    # -- lookup --------------------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition if it is hosted here; None otherwise."""
        of_topic = self.partitions.get(topic)
        return of_topic.get(index) if of_topic is not None else None

    def partition_or_raise(self, topic: str, index: int) -> Partition:
        """The partition hosted here.

        Raises ReplicaStorageFailure when its directory is offline, NotLeaderOrFollower when other brokers host it, and
        UnknownTopicOrPartition when no broker does.
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
        """Apply LeaderAndIsr (api 4): become leader or follower of partitions, and create the logs of new ones.

        New followers begin to fetch together at the end, also when a newer controller ends the request early.
        """
        answer = LeaderAndIsrAnswer()
        self.answers.append(answer)
        try:
            return await self._apply_all(request, answer)
        finally:
            self.answers.remove(answer)
            log_not_followed(self._not_followed)
            await follow_all(self._to_follow, self.followers)

    async def _apply_all(self, request: LeaderAndIsrRequest, answer: LeaderAndIsrAnswer) -> LeaderAndIsrResponse:
        deposed = LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        if self.is_deposed(request):
            return deposed
        states = named_states(request)
        while some := list(islice(states, PARTITIONS_TOGETHER)):
            if self.frees_names:
                await former_topics.make_way(self, some, answer)
            await done(partial(self.log_manager.new_logs.make, self._new_logs(some)))
            for each in some:
                if self.is_deposed(request):  # there may be a newer controller meanwhile
                    return deposed
                answer.add(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if answer.is_over(each) else self._apply(*each))
                await pause()
        return answer.response()

    def _new_logs(self, states: Iterable[NamedState]) -> list[NewLog]:
        """The logs that these states need and that may be missing."""
        return [
            NewLog(TopicPartition(topic, state.partition_index), topic_id, state.is_new)
            for topic, topic_id, state in states
            if self.partition(topic, state.partition_index) is None and self.broker_id in state.replicas
        ]

    def is_deposed(self, request: UpdateMetadataRequest | LeaderAndIsrRequest | StopReplicaRequest) -> bool:
        """Whether the sender is older than the newest known controller. Otherwise remembers the sender's epoch."""
        if request.controller_epoch >= self.controller_epoch:
            self.controller_epoch = request.controller_epoch
            return False
        logger.warning(
            "refused %s of controller %d: its epoch %d is older than %d",
            type(request).__name__, request.controller_id, request.controller_epoch, self.controller_epoch,
        )  # fmt: skip
        return True

    def _apply(self, topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> ErrorCode:
        """Apply the state of one partition. Returns the error code for the controller."""
        topic_partition = TopicPartition(topic, state.partition_index)
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partition(topic, state.partition_index)
        try:
            if partition is not None:
                if topic_id != ZERO_UUID and partition.topic_id not in (ZERO_UUID, topic_id):
                    logger.error("%s: LeaderAndIsr has another topic of that name; the log stays unchanged", topic_partition)
                    return ErrorCode.INCONSISTENT_TOPIC_ID
                if state.leader_epoch <= partition.leader_epoch:
                    return self._repeated(partition, topic_id, state)
            if self.broker_id not in state.replicas:
                logger.warning("LeaderAndIsr names %s, but its replicas %s are on other brokers", topic_partition, state.replicas)
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                partition = self._host(topic_partition, topic_id, is_new=state.is_new)
            partition.is_named_by_id = topic_id != ZERO_UUID
            if state.leader == self.broker_id:
                self.unfollow(topic_partition)
                partition.become_leader(state, elapsed_ms(self._clock))
                self._notify_listeners(partition)
            elif state.leader in self.cluster.brokers:
                # The broker from which it is fetched is no longer the leader. Its records must not be appended once the new epoch is known.
                self.unfollow(topic_partition)
                if partition.become_follower(state):
                    self._to_follow[topic_partition] = partition
                self._notify_listeners(partition)
            else:
                # The log exists, so that its high watermark is checkpointed. The partition's state stays, and a repetition is accepted.
                self._not_followed.setdefault(state.leader, []).append(topic_partition)
            self.log_manager.moves.start(topic_partition)
        except LogDirFailure as failure:
            self.log_manager.report_failure(failure)
            self.offline[topic_partition] = topic_id
            return ErrorCode.KAFKA_STORAGE_ERROR
        except InconsistentTopicId as error:
            logger.error("%s", error)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        except Exception:
            # A fault of this broker. The controller does not repeat the request, so the other partitions must not be left out.
            logger.exception("%s: LeaderAndIsr could not be applied", topic_partition)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Stop fetching the partition, whatever broker leads it."""
        self._to_follow.pop(topic_partition, None)
        self.followers.unfollow((topic_partition,))

    def _notify_listeners(self, partition: Partition) -> None:
        for listener in self.leadership_listeners:
            listener(partition)

    def _repeated(self, partition: Partition, topic_id: bytes, state: LeaderAndIsrPartitionState) -> ErrorCode:
        """Apply a state of a known leader epoch. In the current epoch the controller may only add or remove the topic id."""
        if state.leader_epoch == partition.leader_epoch:
            if topic_id != ZERO_UUID and partition.topic_id == ZERO_UUID:
                self.log_manager.get_or_create(partition.topic_partition, topic_id)
            elif topic_id != ZERO_UUID or partition.topic_id == ZERO_UUID or state.leader == self.broker_id:
                return ErrorCode.STALE_CONTROLLER_EPOCH
            partition.is_named_by_id = topic_id != ZERO_UUID
            if not partition.is_leader:
                self._to_follow[partition.topic_partition] = partition  # to be fetched by id, or by name, from now on
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
        """Stop hosting the partition."""
        self.hide(partition)
        self.notify_removed(partition)

    def hide(self, partition: Partition) -> None:
        """Make the partition unavailable for lookups, reads and appends. `notify_removed` must follow."""
        topic, index = partition.topic_partition
        partition.take_offline()
        del self.partitions[topic][index]
        if not self.partitions[topic]:
            del self.partitions[topic]
            self.topic_stats.forget(topic)

    def notify_removed(self, partition: Partition) -> None:
        """Notify the fetcher, waiting requests and listeners of a hidden partition."""
        self.unfollow(partition.topic_partition)
        partition.notify_all()
        self._notify_listeners(partition)

    # -- log directories -------------------------------------------------------------------------------------------------

    def _on_log_replaced(self, log: PartitionLog) -> None:
        """Serve the log in the other directory to which it was moved."""
        partition = self.partition(*log.topic_partition)
        if partition is not None:
            partition.log = log
            partition.notify_all()

    def _on_flushed(self, log: PartitionLog) -> None:
        """Notify requests after a flush, because producers may wait for it."""
        partition = self.partition(*log.topic_partition)
        if partition is not None:
            partition.waiters.notify()

    def _on_log_start_offset(self, log: PartitionLog) -> None:
        self.log_manager.on_log_start_offset(log)
        self._on_log_changed(log)

    def _on_log_changed(self, log: PartitionLog) -> None:
        """Notify fetches when the start or end of a log changed. Other requests do not wait for that."""
        partition = self.partition(*log.topic_partition)
        if partition is not None:
            partition.end_idle_fetches()

    # -- the ISRs -----------------------------------------------------------------------------------------------------------

    def maybe_shrink_isrs(self, now_ms: int) -> None:
        """Propose to remove followers that lag behind, with pauses. `now_ms` is the time of `elapsed_ms`.

        To be called every half of `replica.lag.time.max.ms` (Kafka's isr-expiration). So a follower leaves the ISR after at most one and a
        half times that. High watermarks that waited for a follower outside the ISR move when it is gone or lags, without another append.
        """

        def look_at(partition: Partition) -> None:
            self.isr_changes.maybe_shrink(partition, now_ms)
            if partition.log.high_watermark < partition.log.log_end_offset:
                partition.maybe_advance_high_watermark()

        begin(visit_all("isr-expiration", self, look_at))

    # -- disk and configuration ------------------------------------------------------------------------------------------

    def on_config_change(self, log: PartitionLog) -> None:
        """Apply the new configuration of a log."""
        partition = self.partition(*log.topic_partition)
        if partition is not None:
            partition.on_config_change()
            for listener in self.config_listeners:
                listener(partition)

    def checkpoint_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint` in every online directory."""
        self.log_manager.checkpoint_high_watermarks()
