"""Coordinates the groups of this broker: connects their state machines with timers, log and connections. Kafka's GroupCoordinator.

A request takes three steps: check that this broker coordinates the group, hand the event to the group's state machine, carry out the
effects. Requests about members are here. Requests about offsets are in `offsets`, an `OffsetCommits`. Handlers call both.

Wiring, by the server:

    groups = GroupCoordinator(config, clock, timing_wheel, replica_manager, produce_purgatory, workers, transaction_verifier, share_state)
    replica_manager.leadership_listeners.append(groups.on_leadership_change)
    replica_manager.deletion_listeners.append(groups.on_partitions_deleted)
    groups.start()          # before the broker registers with the controller, or it would miss what it leads
    ...
    await groups.stop()     # before the logs close
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol
from uuid import uuid4

from ottla.config.broker import BrokerConfig
from ottla.config.keys.groups import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_COMMIT_REQUIRED_ACKS,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_LOAD_BUFFER_SIZE,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
    OFFSETS_TOPIC_COMPRESSION_CODEC,
    OFFSETS_TOPIC_NUM_PARTITIONS,
)
from ottla.config.keys.own import OTTLA_ALL_GROUPS_MAX_METADATA_BYTES, OTTLA_GROUP_MAX_METADATA_BYTES
from ottla.config.keys.replication import INTER_BROKER_PROTOCOL_VERSION
from ottla.config.resources import GroupConfigs, no_group_config
from ottla.coordination.groups.classic_group import CLASSIC, ClassicGroup, GroupSettings
from ottla.coordination.groups.commits import Verifier
from ottla.coordination.groups.consumer.configuration import consumer_settings
from ottla.coordination.groups.consumer.coordinator import ConsumerGroups
from ottla.coordination.groups.consumer.group import CONSUMER, ConsumerGroup
from ottla.coordination.groups.coordinated import CoordinatedGroups
from ottla.coordination.groups.effects import Completion, Effect, JoinResult, LeaveReply, LeaveResult, Store, SyncResult, TimerKey
from ottla.coordination.groups.group import Group, GroupState
from ottla.coordination.groups.loading import GroupLoader
from ottla.coordination.groups.membership import Leaving, on_heartbeat, on_leave, on_loaded, on_unloaded
from ottla.coordination.groups.metadata_bytes import MetadataBudget
from ottla.coordination.groups.offset_commits import OffsetCommits
from ottla.coordination.groups.rebalance import Join, on_join, on_timer
from ottla.coordination.groups.records import group_key, group_value_version, is_too_long, offset_value_version
from ottla.coordination.groups.share.configuration import share_settings
from ottla.coordination.groups.share.coordinator import ShareGroups, ShareMachine
from ottla.coordination.groups.share.group import SHARE
from ottla.coordination.groups.share.offsets import StateOfGroups
from ottla.coordination.groups.syncing import Sync, on_stored, on_sync
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC
from ottla.coordination.partitions.elections import Elections
from ottla.coordination.partitions.runner import EffectRunner
from ottla.coordination.partitions.topic_log import GROUP_STORE_ERRORS, NOT_APPENDED, TopicLog, encode_pairs
from ottla.pauses import begin, pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.leader.partition import Partition
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

CLASSIC_STORE_ERRORS: Final = {**GROUP_STORE_ERRORS, ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
"""The same for members of classic groups. Those of the new protocol take REBALANCE_IN_PROGRESS for a fatal error."""


class StateMachine(Protocol):
    """The state machine of the groups of one type; `Any` stands for that type and for its own effects."""

    def on_loaded(self, group: Any) -> None:
        """The group was read from the log."""

    def on_unloaded(self, group: Any) -> None:
        """This broker no longer coordinates the group. Its timers are cancelled."""

    def on_timer(self, group: Any, key: Any) -> Sequence[Any]:
        """A timer of the group is due; returns the effects."""

    def carry_out(self, group: Any, effect: Any) -> None:
        """Carry out an effect that is not known to the runner."""


class GroupMachines:
    """Loads, unloads and times groups; the type of a group decides about its state machine. Implements `StateKind` of
    `coordination.partitions.elections` and `Machines` of `coordination.runner`."""

    __slots__ = ("_groups", "of_type", "runner")

    noun = "groups"

    waits_for_replicas = False

    def __init__(self, groups: CoordinatedGroups, timing_wheel: TimingWheel) -> None:
        """`of_type` is to be filled before the first group is loaded."""
        self._groups = groups
        self.of_type: Mapping[str, StateMachine] = {}
        self.runner: EffectRunner[Group, Any] = EffectRunner(self, timing_wheel)

    # -- kept in partitions --------------------------------------------------------------------------------------------------

    def loader(self, name: str) -> GroupLoader:
        """A reader for the log of a partition of this name."""
        return GroupLoader(name, self._groups.settings)

    def on_loaded(self, state: Group) -> None:
        """The group was read from the log."""
        for producer_id in state.offsets.transactional:
            self._groups.enter_transaction(producer_id, state)
        state.metadata.count_in(self._groups.metadata)
        self.of_type[state.group_type].on_loaded(state)

    def on_lost(self) -> None:
        """Nothing is kept by partition."""

    def on_unloaded(self, state: Group) -> None:
        """This broker no longer coordinates the group."""
        self._groups.leave_transactions(state)
        state.metadata.count_out()
        self.runner.cancel_timers(state)
        self.of_type[state.group_type].on_unloaded(state)

    # -- effects -------------------------------------------------------------------------------------------------------------

    def name_of(self, subject: Group) -> str:
        """The name of the group, for the log."""
        return f"group {subject.group_id}"

    def on_timer(self, subject: Group, key: Any) -> Sequence[Any]:
        """A timer of the group is due. Nothing follows if the partition of the group was lost: another coordinator has its state."""
        if self._groups.owner_of(subject.group_id, subject) is None:
            return ()
        return self.of_type[subject.group_type].on_timer(subject, key)

    def carry_out(self, subject: Group, effect: Any) -> None:
        """Carry out an effect of the group's own machine."""
        self.of_type[subject.group_type].carry_out(subject, effect)


class ClassicMachine:
    """Runs the state machine of classic groups. Implements `StateMachine`."""

    __slots__ = ("_clock", "_groups", "_log", "_runner")

    def __init__(self, groups: CoordinatedGroups, log: TopicLog, runner: EffectRunner[Group, Store], clock: Clock) -> None:
        self._groups = groups
        self._log = log
        self._runner = runner
        self._clock = clock

    def on_loaded(self, group: ClassicGroup) -> None:
        """The group was read from the log."""
        self._runner.run(group, on_loaded(group, self._clock.now_ms()))

    def on_unloaded(self, group: ClassicGroup) -> None:
        """This broker no longer coordinates the group."""
        self._runner.run(group, on_unloaded(group, self._clock.now_ms()))

    def on_timer(self, group: ClassicGroup, key: TimerKey) -> list[Effect]:
        """A timer of the group is due."""
        return on_timer(group, key, self._clock.now_ms())

    def carry_out(self, group: ClassicGroup, effect: Store) -> None:
        """Append the group's metadata, unless its partition was lost: this broker may lead it again, with a newer state of the group.

        Effects may also be queued for some turns, in which the group can be deleted or become one of another type. A late record would undo
        the tombstones, and hide the records of the group that followed.
        """
        stored = partial(self._on_stored, group, effect.then)
        owned = self._groups.owner_of(group.group_id, group)
        if owned is None or group.is_dead:
            stored(ErrorCode.NOT_COORDINATOR, NOT_APPENDED)
        else:
            self._log.append(owned.index, encode_pairs([(group_key(group.group_id), effect.value)]), 1, stored)

    def _on_stored(self, group: ClassicGroup, then: Completion, error: ErrorCode, _: int) -> None:
        self._runner.run(group, on_stored(group, then, CLASSIC_STORE_ERRORS.get(error, error), self._clock.now_ms()))


class GroupCoordinator:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timing_wheel: TimingWheel,
        replica_manager: ReplicaManager,
        produce_purgatory: Purgatory,
        workers: Executor,
        verifier: Verifier,
        share_state: StateOfGroups,
        new_uuid: Callable[[], object] = uuid4,
        while_loading: Callable[[], AbstractContextManager[None]] = nullcontext,
        group_configs: GroupConfigs = no_group_config,
        level: Callable[[], int] = int,
        share_level: Callable[[], int] = int,
    ) -> None:
        """Groups are loaded within a context of `while_loading`. `group_configs` returns the configuration of a single group, `level` the
        level of the feature `group.version`, and `share_level` that of `share.version`. `share_state` changes the state of share groups."""
        self._config = config
        self._clock = clock
        self._timing_wheel = timing_wheel
        self._new_uuid = new_uuid
        self._expiring: asyncio.Task[None] | None = None
        self._expiry_timer: TimerTask | None = None
        self._check_interval_ms = config[OFFSETS_RETENTION_CHECK_INTERVAL_MS]
        self.settings = _settings_of(config)
        self._cluster = replica_manager.cluster
        metadata = MetadataBudget(config[OTTLA_ALL_GROUPS_MAX_METADATA_BYTES], config[OTTLA_GROUP_MAX_METADATA_BYTES])
        self.groups = CoordinatedGroups(self._cluster, self.settings, config[OFFSETS_TOPIC_NUM_PARTITIONS], metadata)
        self._log = TopicLog(
            GROUP_METADATA_TOPIC,
            replica_manager,
            produce_purgatory,
            clock,
            timeout_ms=config[OFFSETS_COMMIT_TIMEOUT_MS],
            required_acks=config[OFFSETS_COMMIT_REQUIRED_ACKS],
            codec=config[OFFSETS_TOPIC_COMPRESSION_CODEC],
        )
        machines = GroupMachines(self.groups, timing_wheel)
        self._runner = machines.runner
        parts = (self.groups, self._log, self._runner, self._cluster, clock, workers)
        self.consumer = ConsumerGroups(*parts, consumer_settings(config, group_configs), new_uuid, level)
        self.regex_threads = self.consumer.machine.regex_threads
        share = ShareMachine(share_state, *parts, share_settings(config, group_configs))
        self.share = ShareGroups(self.groups, share, share_level, share_state)
        classic = ClassicMachine(self.groups, self._log, self._runner, clock)
        machines.of_type = {CLASSIC: classic, CONSUMER: self.consumer.machine, SHARE: share}
        self._elections: Elections[Group] = Elections(
            self.groups, machines, clock, workers, config[OFFSETS_LOAD_BUFFER_SIZE], while_loading
        )
        self.offsets = OffsetCommits(
            self.groups,
            self._runner,
            self._log,
            clock,
            config[OFFSET_METADATA_MAX_BYTES],
            config[OFFSETS_RETENTION_MINUTES] * 60_000,
            verifier,
            level,
            self.share.offsets.forget_all,
        )

    # -- life --------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Answer requests, and look from time to time for expired offsets, and for groups whose protocol the cluster no longer has."""
        self.groups.is_active = True
        self._expiry_timer = self._timing_wheel.add(self._check_interval_ms, self._expire)

    async def stop(self) -> None:
        """Answer all waiters, and accept no more requests."""
        self.groups.is_active = False
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.gather(self._expiring, return_exceptions=True)
        await self._elections.stop()
        await self._elections.unload_all()
        await self.consumer.machine.stop()
        await self.share.machine.stop()
        self._runner.finish()

    def on_levels_changed(self) -> None:
        """The finalized levels of features have changed."""
        begin(self.consumer.leave_protocol())

    def on_leadership_change(self, partition: Partition) -> None:
        """A partition of this broker has a new leader, or is no longer hosted here."""
        self._elections.on_leadership_change(partition)

    async def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """The cluster has deleted these partitions. Other work of the event loop runs meanwhile, but no other change of metadata."""
        of_share_groups = self.share.delete_of_partitions(partitions, self._cluster)
        steps = chain(self.offsets.delete_of_partitions(partitions), of_share_groups)
        try:
            for _ in steps:
                await pause()
        finally:
            for _ in steps:  # no other event deletes the rest
                pass

    def on_transaction_completed(self, producer_id: int, partition_index: int, is_commit: bool) -> None:
        """All in-sync replicas of a partition of `__consumer_offsets` have the marker of a producer's transaction."""
        self.offsets.on_transaction_completed(producer_id, partition_index, is_commit=is_commit)

    def _expire(self) -> None:
        if self._expiring is None or self._expiring.done():
            self._expiring = asyncio.get_running_loop().create_task(self._check(), name="check-groups")
        self._expiry_timer = self._timing_wheel.add(self._check_interval_ms, self._expire)

    async def _check(self) -> None:
        await self.offsets.expire()
        await self.consumer.leave_protocol()

    def expire_member(self, group_id: str, member_id: str) -> bool:
        """End a member's session now, as its timeout would. Returns whether this broker coordinates a group with the member."""
        group = self.groups.get(group_id)
        return group is not None and self._runner.fire_early(group, group.session_key(member_id))

    # -- members -----------------------------------------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` whose leader coordinates the group."""
        return self.groups.partition_for(group_id)

    def join(self, group_id: str, join: Join) -> None:
        """JoinGroup; `join.waiter` is a JoinReply and is called once, now or when the rebalance is complete."""
        error = ErrorCode.UNSUPPORTED_VERSION if self.settings.refuses(join.group_instance_id) else self.groups.check(group_id)
        if not error and not self.settings.min_session_timeout_ms <= join.session_timeout_ms <= self.settings.max_session_timeout_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if not error and is_too_long(group_id):
            error = ErrorCode.INVALID_GROUP_ID
        now_ms = self._clock.now_ms()
        group: Group | None = None
        if not error:
            group = self.groups.get(group_id)
            error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            if not join.member_id:
                join = join._replace(uuid=str(self._new_uuid()))
                if group is None:
                    made = ClassicGroup(group_id, self.settings, now_ms)
                    group = made if self.groups.make(made, f"{join.client_id} ({join.client_host})") else None
                    error = ErrorCode.GROUP_MAX_SIZE_REACHED
            if isinstance(group, ConsumerGroup):
                self._join_consumer_group(group, join, now_ms)
                return
        if not isinstance(group, ClassicGroup):
            join.waiter(JoinResult(join.member_id, error))
            return
        self._runner.run(group, on_join(group, join, now_ms))

    def _join_consumer_group(self, group: ConsumerGroup, join: Join, now_ms: int) -> None:
        """JoinGroup in a group of the new protocol. One without members becomes a classic group."""
        if group.members or group.replaced is not None:
            self.consumer.join(group, join)
            return
        reply = join.waiter
        if join.member_id:
            reply(JoinResult(join.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        elif (classic := self.consumer.become_classic(group)) is None:
            reply(JoinResult(join.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._runner.run(classic, on_join(classic, join, now_ms))

    def sync(self, group_id: str, sync: Sync) -> None:
        """SyncGroup; `sync.waiter` is a SyncReply and is called once, now or when the leader's assignment is stored."""
        error, group = self._classic(group_id)
        if isinstance(found := self.groups.get(group_id), ConsumerGroup) and not error:
            self.consumer.sync(found, sync)
            return
        if self.settings.refuses(sync.group_instance_id):
            error, group = ErrorCode.UNSUPPORTED_VERSION, None
        if group is None:
            if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The assignment that the former coordinator was waiting for is lost, so the member joins again.
                error = ErrorCode.REBALANCE_IN_PROGRESS
            sync.waiter(SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        owned = self.groups.partitions[self.groups.partition_for(group_id)]
        if group.state is GroupState.STABLE and not self._log.has_what_was_loaded(owned):
            # The loaded records may still be lost with this broker, and the next one would make another assignment for the same generation.
            sync.waiter(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        self._runner.run(group, on_sync(group, sync))

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat. While the group loads every member is taken to live."""
        if self.settings.refuses(group_instance_id):
            return ErrorCode.UNSUPPORTED_VERSION
        error, group = self._classic(group_id)
        if error:
            return ErrorCode.NONE if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        if group is None:
            found = self.groups.get(group_id)
            if isinstance(found, ConsumerGroup):
                return self.consumer.classic_heartbeat(found, member_id, group_instance_id, generation_id)
            return ErrorCode.UNKNOWN_MEMBER_ID
        error, effects = on_heartbeat(group, member_id, group_instance_id, generation_id)
        self._runner.run(group, effects)
        return error

    def leave(self, group_id: str, leaving: Sequence[Leaving], reply: LeaveReply) -> None:
        """LeaveGroup; `reply` is called once, now or when the records of a group of the new protocol are replicated."""
        error, group = self._classic(group_id)
        if group is not None:
            error, errors, effects = on_leave(group, leaving, self._clock.now_ms())
            self._runner.run(group, effects)
            reply(LeaveResult(error, errors))
        elif error:
            reply(LeaveResult(error))
        elif isinstance(found := self.groups.get(group_id), ConsumerGroup):
            self.consumer.leave(found, leaving, reply)
        else:
            reply(LeaveResult(ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)))

    def _classic(self, group_id: str, may_be_empty: bool = False) -> tuple[ErrorCode, ClassicGroup | None]:
        """The group that the requests of members are about; one of another type is not known to them."""
        error, group = self.groups.find(group_id, may_be_empty)
        return error, group if isinstance(group, ClassicGroup) else None

    # -- what there is -----------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> tuple[ErrorCode, ClassicGroup | None]:
        """The group as it is now; None without an error when there is no classic one, which Kafka calls Dead."""
        return self._classic(group_id, may_be_empty=True)

    def list(self) -> tuple[ErrorCode, Iterable[Group]]:
        """The groups coordinated here. They may change while they are iterated over."""
        if not self.groups.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.groups.is_loading else ErrorCode.NONE, self.groups

    def count(self, state: GroupState | None = None) -> int:
        """How many groups there are (NumGroups), or how many in a state (NumGroupsStable and its like)."""
        return sum(1 for group in self.groups if state is None or group.state is state)


def _settings_of(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        config[GROUP_MIN_SESSION_TIMEOUT_MS],
        config[GROUP_MAX_SESSION_TIMEOUT_MS],
        config[GROUP_MAX_SIZE],
        config[GROUP_INITIAL_REBALANCE_DELAY_MS],
        group_value_version(config[INTER_BROKER_PROTOCOL_VERSION]),
        offset_value_version(config[INTER_BROKER_PROTOCOL_VERSION]),
    )
