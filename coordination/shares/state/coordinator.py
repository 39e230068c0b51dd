"""Coordinates the stored state of share partitions: Kafka's ShareCoordinator.

Group coordinators initialize and delete the state of a share partition; its leader reads the state when it becomes leader, and writes the
changes. Epochs fence earlier leaders (`FENCED_LEADER_EPOCH`) and earlier generations of the state (`FENCED_STATE_EPOCH`). Every `reply` is
called exactly once, at once or when the record is on all in-sync replicas. A read waits for the records before it as well.

Wiring, by the server: as for `transactions.coordinator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from ottla.config.broker import BrokerConfig
from ottla.config.keys.shares import (
    SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS,
    SHARE_COORDINATOR_LOAD_BUFFER_SIZE,
    SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT,
    SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC,
    SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS,
    SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS,
    SHARE_COORDINATOR_WRITE_TIMEOUT_MS,
)
from ottla.coordination.internal_topics import SHARE_STATE_TOPIC
from ottla.coordination.partitions.elections import Elections
from ottla.coordination.partitions.load_times import LoadTimes
from ottla.coordination.partitions.owned import OwnedPartition, OwnedStates
from ottla.coordination.partitions.topic_log import NOT_APPENDED, STORE_ERRORS, TopicLog, encode_pairs
from ottla.coordination.shares.record_states import StateBatch
from ottla.coordination.shares.state.loading import ShareStateLoader
from ottla.coordination.shares.state.stored_state import (
    NO_COUNT,
    NO_OFFSET,
    SharePartitionKey,
    StoredState,
    encode_value,
    snapshot_key,
    update_key,
)
from ottla.coordination.shares.state.upkeep import ShareStateUpkeep
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_state_records import ShareSnapshotValue, ShareUpdateValue
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.leader.partition import Partition
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.clock import Clock

NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."
NEGATIVE_LEADER_EPOCH: Final = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH: Final = "The state epoch cannot be a negative number."
READ_UNINITIALIZED: Final = "Read operation on uninitialized share partition not allowed."
WRITE_UNINITIALIZED: Final = "Write operation on uninitialized share partition not allowed."


class StateResult(NamedTuple):
    """The outcome for one share partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()


Reply: TypeAlias = Callable[[StateResult], None]


class StateWrite(NamedTuple):
    """A change of a share partition, as its leader sends it."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch]


class ShareCoordinator:
    """See the module. Implements `StateKind` of `coordination.partitions.elections`."""

    __slots__ = (
        "_clock",
        "_cluster",
        "_deleted",
        "_elections",
        "_log",
        "_reads",
        "_unreplicated",
        "_updates_per_snapshot",
        "_upkeep",
        "states",
        "writes",
    )

    noun = "share partitions"

    waits_for_replicas = True
    """A leader acts on what it reads: records that were acknowledged are not delivered again."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timing_wheel: TimingWheel,
        replica_manager: ReplicaManager,
        produce_purgatory: Purgatory,
        workers: Executor,
        while_loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """States are loaded within a context of `while_loading`."""
        self.writes = 0
        """The number of writes of leaders, including refused ones."""
        self._clock = clock
        self._cluster = replica_manager.cluster
        self._updates_per_snapshot = config[SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT]
        self.states: OwnedStates[StoredState] = OwnedStates(
            SHARE_STATE_TOPIC, self._cluster, config[SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS]
        )
        self._log = TopicLog(
            SHARE_STATE_TOPIC,
            replica_manager,
            produce_purgatory,
            clock,
            timeout_ms=config[SHARE_COORDINATOR_WRITE_TIMEOUT_MS],
            codec=config[SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC],
        )
        self._elections: Elections[StoredState] = Elections(
            self.states, self, clock, workers, config[SHARE_COORDINATOR_LOAD_BUFFER_SIZE], while_loading
        )
        self._upkeep = ShareStateUpkeep(
            self.states,
            self._log,
            timing_wheel,
            clock,
            self.write_snapshot,
            self._write_tombstone,
            self._is_gone,
            prune_interval_ms=config[SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS],
            cold_interval_ms=config[SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS],
        )
        self._unreplicated: dict[StoredState, int] = {}
        """The number of records that not all in-sync replicas have yet, where there are any."""
        self._reads: dict[StoredState, list[Callable[[ErrorCode], None]]] = {}
        """The reads that wait for the last of these records, and for its result."""
        self._deleted: dict[str, StoredState] = {}
        """The deleted states whose tombstones not all in-sync replicas have yet, by their names."""

    # -- life ----------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Answer requests, and delete old records from time to time."""
        self.states.is_active = True
        self._upkeep.checks.start()

    async def stop(self) -> None:
        """Accept no more requests."""
        self.states.is_active = False
        await self._upkeep.checks.stop()
        await self._elections.stop()
        await self._elections.unload_all()

    def loader(self, name: str) -> ShareStateLoader:
        """A reader for the log of a partition of this name."""
        return ShareStateLoader(name)

    def on_loaded(self, state: StoredState) -> None:
        """Nothing follows: a state has no timers."""

    def on_unloaded(self, state: StoredState) -> None:
        """Nothing follows."""

    def on_lost(self) -> None:
        """Forget deletions, too. Appends in flight fail, and so their requests are answered."""
        owned = self.states.partitions
        self._deleted = {name: state for name, state in self._deleted.items() if self.partition_for(state.key) in owned}

    def on_leadership_change(self, partition: Partition) -> None:
        """A partition of this broker has a new leader, or is no longer hosted here."""
        self._elections.on_leadership_change(partition)

    async def on_partitions_deleted(self, _: Sequence[TopicPartition]) -> None:
        """The cluster has deleted partitions: their states are deleted, too, and those that an earlier coordinator left."""
        await self._upkeep.forget_deleted()

    @property
    def load_times(self) -> LoadTimes:
        """How long partitions of `__share_group_state` took to load."""
        return self._elections.load_times

    def partition_for(self, key: SharePartitionKey) -> int:
        """The partition of `__share_group_state` whose leader coordinates the share partition."""
        return self.states.partition_for(str(key))

    # -- requests ------------------------------------------------------------------------------------------------------------

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Reply) -> None:
        """InitializeShareGroupState: begin the state anew, for records from `start_offset` on."""
        error, state = self.states.find(str(key))
        if error:
            reply(refused(error))
        elif key.partition < 0:
            reply(invalid(NEGATIVE_PARTITION))
        elif state_epoch < 0:
            reply(invalid(NEGATIVE_STATE_EPOCH))
        elif state is not None and state_epoch < state.state_fence:
            reply(refused(ErrorCode.FENCED_STATE_EPOCH))
        elif not self._exists(key):
            reply(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif state is not None and state_epoch == state.state_epoch and state.initial_start in (None, start_offset):
            self._when_replicated(state, lambda error: reply(refused(error)))  # the question is repeated; leaders may use the state already
        else:
            if state is None:
                state = StoredState(key)
            self._append(state, state.initialized(state_epoch, start_offset, self._clock.now_ms()), lambda error: reply(refused(error)))

    def read(self, key: SharePartitionKey, leader_epoch: int, reply: Reply) -> None:
        """ReadShareGroupState: the leader of this epoch takes over. Earlier leaders are fenced from now on."""
        error, state = self.states.find(str(key))
        if error:
            reply(refused(error))
        elif key.partition < 0:
            reply(invalid(NEGATIVE_PARTITION))
        elif leader_epoch < 0:
            reply(invalid(NEGATIVE_LEADER_EPOCH))
        elif state is None:
            reply(invalid(READ_UNINITIALIZED))
        elif leader_epoch < state.leader_fence:
            reply(refused(ErrorCode.FENCED_LEADER_EPOCH))
        elif not self._exists(key):
            reply(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif leader_epoch > state.leader_fence:
            self._change(state, state.led(leader_epoch), partial(self._on_readable, state, reply))
        else:
            self._when_replicated(state, partial(self._on_readable, state, reply))

    def _when_replicated(self, state: StoredState, then: Callable[[ErrorCode], None]) -> None:
        """Call `then` when all in-sync replicas have the records of the state so far."""
        if state in self._unreplicated:
            self._reads.setdefault(state, []).append(then)
        elif state.is_replicated:
            then(ErrorCode.NONE)
        else:  # the last record was not in time; another one, which changes nothing, follows it
            self._change(state, state.led(state.leader_epoch), then)

    def _when_deleted(self, name: str, then: Callable[[ErrorCode], None]) -> None:
        """Call `then` when all in-sync replicas have the tombstone of a deleted state, which a new leader may have otherwise."""
        state = self._deleted.get(name)
        if state is None:
            then(ErrorCode.NONE)
        elif state in self._unreplicated:
            self._reads.setdefault(state, []).append(then)
        else:  # the tombstone was not in time; another one follows it
            self._append(state, None, then)

    def _on_readable(self, state: StoredState, reply: Reply, error: ErrorCode) -> None:
        reply(refused(error) if error else _found(state))

    def write(self, key: SharePartitionKey, write: StateWrite, reply: Reply) -> None:
        """WriteShareGroupState: the leader changes the state."""
        self.writes += 1
        error, state = self.states.find(str(key))
        if error:
            reply(refused(error))
        elif key.partition < 0:
            reply(invalid(NEGATIVE_PARTITION))
        elif write.leader_epoch < 0:
            reply(invalid(NEGATIVE_LEADER_EPOCH))
        elif write.state_epoch < 0:
            reply(invalid(NEGATIVE_STATE_EPOCH))
        elif state is None:
            reply(invalid(WRITE_UNINITIALIZED))
        elif write.leader_epoch < state.leader_fence:
            reply(refused(ErrorCode.FENCED_LEADER_EPOCH))
        elif write.state_epoch < state.state_fence:
            reply(refused(ErrorCode.FENCED_STATE_EPOCH))
        elif not self._exists(key):
            reply(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif any(not 0 <= batch.first <= batch.last for batch in write.batches):
            reply(StateResult(ErrorCode.UNKNOWN_SERVER_ERROR, "Unable to write share group state: a batch ends before it begins."))
        else:
            update = state.written(write.start_offset, write.complete_count, write.batches)
            self._change(state, update, lambda error: reply(refused(error)))

    def delete(self, key: SharePartitionKey, reply: Reply) -> None:
        """DeleteShareGroupState: forget the share partition."""
        error, state = self.states.find(str(key))
        if error:
            reply(refused(error))
        elif key.partition < 0:
            reply(invalid(NEGATIVE_PARTITION))
        elif not self._exists(key):
            reply(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif state is None:
            self._when_deleted(str(key), lambda error: reply(refused(error)))
        else:
            self._append(state, None, lambda error: reply(refused(error)))

    def summarize(self, key: SharePartitionKey, reply: Reply) -> None:
        """ReadShareGroupStateSummary: the epochs and the start of a share partition, for descriptions."""
        error, state = self.states.find(str(key))
        if error:
            reply(refused(error))
        elif key.partition < 0:
            reply(invalid(NEGATIVE_PARTITION))
        elif not self._exists(key):
            reply(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif state is None:
            reply(StateResult(start_offset=NO_OFFSET))
        else:
            reply(_found(state))

    def _exists(self, key: SharePartitionKey) -> bool:
        name = self._cluster.names_by_id.get(key.topic_id)
        return name is not None and self._cluster.partition(name, key.partition) is not None

    def _is_gone(self, owned: OwnedPartition, key: SharePartitionKey) -> bool:
        """Whether the partition does not exist any more. Metadata that is older than the leadership of this broker may lack a topic."""
        _, known_epoch = self._cluster.leader_of(SHARE_STATE_TOPIC, owned.index)
        return known_epoch >= owned.leader_epoch and not self._exists(key)

    # -- records -------------------------------------------------------------------------------------------------------------

    def write_snapshot(self, state: StoredState) -> None:
        """Write the whole state again, so that its older records are no longer needed."""
        update = state.led(state.leader_epoch)
        self._append(state, state.snapshot_after(update, self._clock.now_ms()), lambda error: None)

    def _write_tombstone(self, state: StoredState) -> None:
        self._append(state, None, lambda error: None)

    def _change(self, state: StoredState, update: ShareUpdateValue, then: Callable[[ErrorCode], None]) -> None:
        """Store a change; as a snapshot, if there are as many updates as allowed since the last one."""
        if state.updates >= self._updates_per_snapshot:
            self._append(state, state.snapshot_after(update, self._clock.now_ms()), then)
        else:
            self._append(state, update, then)

    def _append(self, state: StoredState, value: ShareSnapshotValue | ShareUpdateValue | None, then: Callable[[ErrorCode], None]) -> None:
        """Append the record, or a tombstone, and change the state by it. `then` is called when all in-sync replicas have the record."""
        key = state.key
        index = self.partition_for(key)
        encoded_key = update_key(key) if isinstance(value, ShareUpdateValue) else snapshot_key(key)
        appending = _Appending(partial(self._on_replicated, state, then))
        self._unreplicated[state] = self._unreplicated.get(state, 0) + 1
        records = encode_pairs([(encoded_key, None if value is None else encode_value(value))])
        offset = self._log.append(index, records, 1, appending.on_replicated)
        if offset != NOT_APPENDED:
            state.is_replicated = False
            self._apply(state, value, offset)
        appending.on_applied()

    def _apply(self, state: StoredState, value: ShareSnapshotValue | ShareUpdateValue | None, offset: int) -> None:
        name = str(state.key)
        if value is None:
            self._deleted[name] = state
            self.states.forget(name, state)
        elif isinstance(value, ShareUpdateValue):
            state.apply_update(value, self._clock.now_ms())
        else:
            state.apply_snapshot(value, offset)
            if self.states.get(name) is None:
                self._deleted.pop(name, None)
                self.states.add(name, state)

    def _on_replicated(self, state: StoredState, then: Callable[[ErrorCode], None], error: ErrorCode) -> None:
        left = self._unreplicated.pop(state) - 1
        if left:
            self._unreplicated[state] = left
        elif not error:
            state.kept_from = state.snapshot_offset
            state.is_replicated = True
            if self._deleted and self._deleted.get(name := str(state.key)) is state:
                del self._deleted[name]
        error = STORE_ERRORS.get(error, error)
        # The reads come first: `then` may write more, which they would show.
        for read in () if left else self._reads.pop(state, ()):
            read(error)
        then(error)


class _Appending:
    """An append that may be replicated at once: what follows has to wait until the state is changed."""

    __slots__ = ("_error", "_is_applied", "_then")

    def __init__(self, then: Callable[[ErrorCode], None]) -> None:
        self._then = then
        self._is_applied = False
        self._error: ErrorCode | None = None

    def on_replicated(self, error: ErrorCode, _: int) -> None:
        """Called by the log."""
        if self._is_applied:
            self._then(error)
        else:
            self._error = error

    def on_applied(self) -> None:
        """The state is changed, unless the append failed."""
        self._is_applied = True
        if self._error is not None:
            self._then(self._error)


def refused(error: ErrorCode) -> StateResult:
    """The outcome with an error and its text, or without one."""
    return StateResult(error, error.message if error else None)


def invalid(message: str) -> StateResult:
    """The outcome of a request that cannot be right."""
    return StateResult(ErrorCode.INVALID_REQUEST, message)


def _found(state: StoredState) -> StateResult:
    return StateResult(
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        complete_count=state.complete_count,
        batches=tuple(state.batches),
    )
