"""Coordinates transactions: connects the state machines of the transactional ids with log, timers and connections. Kafka's
TransactionCoordinator.

A request takes three steps: check that this broker coordinates the id, pass the event to the id's state machine (`state`), carry out the
effects. Every `reply` is called exactly once, at once or when the record of the transition is on all in-sync replicas.

Wiring, by the server:

    transactions = TransactionCoordinator(...)
    replica_manager.leadership_listeners.append(transactions.on_leadership_change)
    transactions.start()          # before the broker registers with the controller, or it would miss what it leads
    ...
    await transactions.stop()     # before the logs close
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, final

from ottla.config.broker import BrokerConfig
from ottla.config.keys.network import REQUEST_TIMEOUT_MS
from ottla.config.keys.transactions import (
    TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from ottla.coordination.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.coordination.partitions.elections import Elections
from ottla.coordination.partitions.load_times import LoadTimes
from ottla.coordination.partitions.owned import OwnedStates
from ottla.coordination.partitions.runner import EffectRunner
from ottla.coordination.partitions.topic_log import STORE_ERRORS, TopicLog, encode_pairs
from ottla.coordination.transactions.between import Between
from ottla.coordination.transactions.effects import AfterAdd, AfterComplete, Effect, ProducerResult, SendMarkers, Store
from ottla.coordination.transactions.expiration import TransactionExpiration
from ottla.coordination.transactions.loading import TransactionLoader
from ottla.coordination.transactions.log_records import FIRST_FLEXIBLE, transaction_key, transaction_value
from ottla.coordination.transactions.markers import PartitionsOf, TransactionMarkers, WriteHere, WriteMarkers
from ottla.coordination.transactions.metadata import (
    IllegalTransition,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TransitMetadata,
)
from ottla.coordination.transactions.partitions import Partitions
from ottla.coordination.transactions.state import (
    NewProducerId,
    must_wait,
    on_add_partitions,
    on_end,
    on_init_producer_id,
    on_loaded,
    on_markers_written,
    on_stored,
    verify,
)
from ottla.pauses import begin
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.leader.partition import Partition
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.clock import Clock

logger = logging.getLogger(__name__)

ProducerReply = Callable[[ProducerResult], None]
ErrorReply = Callable[[ErrorCode], None]


STORE_RETRY_MS: Final = 100
"""Pause before the end of a transaction is appended again, ms."""


@final
class TransactionStats:
    """Counts the transactions that end on this coordinator.

    `on_left` is called for every change of state, with the former state and the time in it, ms.
    """

    __slots__ = ("aborts", "commits", "on_left")

    def __init__(self) -> None:
        self.commits = 0
        self.aborts = 0
        """All of them: of producers, of their next instances, and of timeouts."""
        self.on_left: Callable[[TransactionState, int], None] | None = None

    def count(self, txn: TransactionMetadata, former: TransactionState, since_ms: int, now_ms: int) -> None:
        """A transition of the id is stored. The former state began at `since_ms`, or was only updated."""
        state = txn.state
        if state is former:
            return
        if state is TransactionState.COMPLETE_COMMIT:
            self.commits += 1
        elif state is TransactionState.COMPLETE_ABORT:
            self.aborts += 1
        if self.on_left is not None:
            self.on_left(former, max(0, now_ms - since_ms))


@final
class TransactionCoordinator:
    """See the module. Implements `StateKind` of `coordination.partitions.elections` and `Machines` of `coordination.runner`."""

    __slots__ = ("_between", "_clock", "_config", "_elections", "_level", "_log", "_new_producer_id", "_runner",
                 "_timing_wheel", "expiration", "log_append_retry_queue_size", "markers", "stats", "transactions")  # fmt: skip

    noun = "transactional ids"

    waits_for_replicas = True
    """A marker must not leave before its outcome is safe. Nor may a partition be confirmed whose record may yet be lost."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timing_wheel: TimingWheel,
        replica_manager: ReplicaManager,
        produce_purgatory: Purgatory,
        workers: Executor,
        write_markers: WriteMarkers,
        partitions_of: PartitionsOf,
        new_producer_id: NewProducerId,
        level: Callable[[], int],
        while_loading: Callable[[], AbstractContextManager[None]] = nullcontext,
        markers_here: tuple[int, WriteHere] | None = None,
    ) -> None:
        """`level` is that of transaction.version. Transactional ids are loaded within a context of `while_loading`. `markers_here` is the
        id of this broker, and the writer of markers for its own partitions."""
        self._config = config
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._level = level
        cluster = replica_manager.cluster
        self.transactions: OwnedStates[TransactionMetadata] = OwnedStates(
            TRANSACTION_STATE_TOPIC, cluster, config[TRANSACTION_STATE_LOG_NUM_PARTITIONS], ErrorCode.INVALID_REQUEST
        )
        self._log = TopicLog(TRANSACTION_STATE_TOPIC, replica_manager, produce_purgatory, clock, timeout_ms=config[REQUEST_TIMEOUT_MS])
        self.log_append_retry_queue_size = 0
        """Transactions whose end could not be appended yet (LogAppendRetryQueueSize)."""
        self.stats = TransactionStats()
        self._timing_wheel = timing_wheel
        self._between = Between(timing_wheel)
        self._runner: EffectRunner[TransactionMetadata, Store | SendMarkers] = EffectRunner(self, timing_wheel)
        self.markers = TransactionMarkers(
            cluster,
            config.listeners.inter_broker_listener_name,
            write_markers,
            partitions_of,
            self.coordinator_epoch,
            timing_wheel,
            clock.monotonic,
            self.on_markers_written,
            markers_here,
        )
        self._elections: Elections[TransactionMetadata] = Elections(
            self.transactions, self, clock, workers, config[TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE], while_loading
        )

        self.expiration = TransactionExpiration(
            self.transactions,
            self._runner,
            self._log,
            timing_wheel,
            clock,
            level,
            new_producer_id,
            abort_interval_ms=config[TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS],
            remove_interval_ms=config[TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS],
            expiration_ms=config[TRANSACTIONAL_ID_EXPIRATION_MS],
        )

    # -- life --------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Answer requests, and periodically check for timeouts and unused ids."""
        self.transactions.is_active = True
        self.expiration.checks.start()

    async def stop(self) -> None:
        """Answer waiting requests, and accept no more."""
        self.transactions.is_active = False
        await self.expiration.checks.stop()
        await self._elections.stop()
        await self._elections.unload_all()
        self._runner.finish()
        await self.markers.close()

    def on_leadership_change(self, partition: Partition) -> None:
        """A partition of this broker has a new leader, or is no longer hosted here."""
        self._elections.on_leadership_change(partition)

    # -- kept in partitions --------------------------------------------------------------------------------------------------

    def loader(self, name: str) -> TransactionLoader:
        """A reader for the log of a partition of this name."""
        return TransactionLoader(name)

    def on_loaded(self, state: TransactionMetadata) -> None:
        """The transactional id was read from the log."""
        try:
            effects = on_loaded(state, self._clock.now_ms())
        except IllegalTransition as error:
            logger.error("a record of transactional id %s is damaged, and its markers are not written: %s", state.transactional_id, error)
        else:
            self._runner.run(state, effects)

    def on_lost(self) -> None:
        """Another broker coordinates the transactional ids of a partition; appends in flight fail, and their requests are answered."""
        self.markers.forget_lost()
        self._between.end_lost(lambda txn: not self._coordinates(txn))

    def on_unloaded(self, state: TransactionMetadata) -> None:
        """Nothing follows: only ids with markers to write, or with requests that wait, are known elsewhere."""

    # -- transactions ------------------------------------------------------------------------------------------------------

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` whose leader coordinates the id."""
        return self.transactions.partition_for(transactional_id)

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether InitProducerId or EndTxn may take a new producer id: the id is new here, or has used up its epochs."""
        error, txn = self.transactions.find(transactional_id)
        return not error and (txn is None or txn.is_epoch_exhausted)

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        reply: ProducerReply,
    ) -> None:
        """InitProducerId with a transactional id. `expected` is the id and epoch of a producer that continues after an error (KIP-360)."""
        error, txn = ErrorCode.NONE, None
        if not transactional_id:
            error = ErrorCode.INVALID_REQUEST  # before the timeout is looked at, as in Apache Kafka
        elif not 0 < timeout_ms <= self._config[TRANSACTION_MAX_TIMEOUT_MS]:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        else:
            error, txn = self.transactions.find(transactional_id)
            if not error and txn is None:
                error, txn = self._create(transactional_id, timeout_ms)
        if error:
            reply(ProducerResult(error))
            return
        assert txn is not None
        now_ms = self._clock.now_ms()
        effects = on_init_producer_id(txn, reply, timeout_ms, expected, self._level(), self._new_producer_id, now_ms)
        self._runner.run(txn, effects)

    def _create(self, transactional_id: str, timeout_ms: int) -> tuple[ErrorCode, TransactionMetadata | None]:
        producer_id = self._new_producer_id()
        if producer_id is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        txn = TransactionMetadata(transactional_id, producer_id, NO_PRODUCER_EPOCH, timeout_ms, self._clock.now_ms())
        self.transactions.add(transactional_id, txn)
        return ErrorCode.NONE, txn

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Partitions,
        client_version: int,
        reply: ErrorReply,
        *,
        may_wait: bool = True,
    ) -> None:
        """AddPartitionsToTxn, and AddOffsetsToTxn with the partition of the group. May wait for the end of the previous transaction."""
        error, txn = self._find(transactional_id)
        if txn is None:
            reply(error)
        elif may_wait and must_wait(txn, producer, client_version):
            self._between.wait(txn, partial(self._add_late, transactional_id, producer, partitions, client_version, reply))
        else:
            self._add(txn, producer, partitions, client_version, reply)

    def _add_late(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Partitions, client_version: int, reply: ErrorReply
    ) -> None:
        error, txn = self._find(transactional_id)
        if txn is None:
            reply(error)
        else:
            self._add(txn, producer, partitions, client_version, reply)

    def _add(
        self, txn: TransactionMetadata, producer: ProducerIdAndEpoch, partitions: Partitions, client_version: int, reply: ErrorReply
    ) -> None:
        self._runner.run(txn, on_add_partitions(txn, reply, producer, partitions, client_version, self._clock.now_ms()))

    def verify_partitions(self, transactional_id: str, producer: ProducerIdAndEpoch) -> tuple[ErrorCode, Partitions]:
        """AddPartitionsToTxn that only verifies (KIP-890): an error for all partitions, or those that are in the transaction."""
        error, txn = self._find(transactional_id)
        if txn is None:
            return error, {}
        return verify(txn, producer), txn.partitions

    def end(self, transactional_id: str, producer: ProducerIdAndEpoch, is_commit: bool, client_version: int, reply: ProducerReply) -> None:
        """EndTxn."""
        error, txn = self._find(transactional_id)
        if txn is None:
            reply(ProducerResult(error))
            return
        now_ms = self._clock.now_ms()
        self._runner.run(txn, on_end(txn, reply, producer, is_commit, client_version, self._new_producer_id, now_ms))

    # -- effects -------------------------------------------------------------------------------------------------------------

    def name_of(self, subject: TransactionMetadata) -> str:
        """Names the id, for the log."""
        return f"transactional id {subject.transactional_id}"

    def on_timer(self, subject: TransactionMetadata, key: object) -> list[Effect]:
        """No timer is armed here."""
        raise AssertionError(f"{subject} has no timer {key}")

    def carry_out(self, subject: TransactionMetadata, effect: Store | SendMarkers) -> None:
        """Append a record, or send markers."""
        if isinstance(effect, SendMarkers):
            if self._coordinates(subject):
                self.markers.write(subject, effect.is_commit, effect.completion)
        else:
            self._store(subject, effect)

    def on_markers_written(self, txn: TransactionMetadata, completion: TransitMetadata) -> None:
        """Every partition of the transaction has its marker."""
        self._runner.run(txn, on_markers_written(completion))

    def _store(self, txn: TransactionMetadata, store: Store) -> None:
        # A transaction of version 2 needs the tagged fields, also while this broker has not yet learned of the feature.
        is_flexible = self._level() >= FIRST_FLEXIBLE or store.transit.client_version >= FIRST_FLEXIBLE
        begin(self._encode(txn, store, int(is_flexible)))

    async def _encode(self, txn: TransactionMetadata, store: Store, version: int) -> None:
        """Encode the record, with pauses, and append it. The transition is pending meanwhile."""
        try:
            value = await transaction_value(store.transit, version)
        except Exception:  # a lack of memory, for example: the transition would be pending forever
            logger.exception("%s: its record cannot be encoded", txn)
            self._on_stored(txn, store, ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        else:
            self._append(txn, store, value)

    def _append(self, txn: TransactionMetadata, store: Store, value: bytes) -> None:
        owned = self.transactions.owner_of(txn.transactional_id, txn)
        if owned is None:
            self._on_stored(txn, store, ErrorCode.NOT_COORDINATOR, -1)
            return
        records = encode_pairs([(transaction_key(txn.transactional_id), value)])
        # The record of the next transaction follows that of the end in the same log, so the wait for it covers both.
        waits = not isinstance(store.then, AfterComplete)
        self._log.append(owned.index, records, 1, partial(self._on_stored, txn, store), timeout_ms=store.transit.timeout_ms, waits=waits)

    def _on_stored(self, txn: TransactionMetadata, store: Store, error: ErrorCode, _: int) -> None:
        if self._coordinates(txn):
            error = STORE_ERRORS.get(error, error)
            if error and isinstance(store.then, AfterComplete):
                self._store_later(txn, store, error)
                return
        else:
            error = ErrorCode.NOT_COORDINATOR
        former = txn.state
        since_ms = txn.start_ms if former is TransactionState.ONGOING else txn.last_update_ms
        now_ms = self._clock.now_ms()
        effects = on_stored(txn, store.transit, store.then, error, now_ms)
        self.stats.count(txn, former, since_ms, now_ms)
        self._runner.run(txn, effects)
        if isinstance(store.then, AfterComplete | AfterAdd):
            self._between.end(txn)

    def _store_later(self, txn: TransactionMetadata, store: Store, error: ErrorCode) -> None:
        """Append the end of a transaction again after a pause, until it is in the log or another broker coordinates the id.

        A partition that refuses the append as if it had another leader may stay here: its leader was cut off for a while (`isolation`).
        """
        if error != ErrorCode.NOT_COORDINATOR:
            logger.warning("%s: its end could not be stored (%s); trying again in %d ms", txn, error.name, STORE_RETRY_MS)
        self.log_append_retry_queue_size += 1

        def again() -> None:
            self.log_append_retry_queue_size -= 1
            self._store(txn, store)

        self._timing_wheel.add(STORE_RETRY_MS, again)

    def coordinator_epoch(self, txn: TransactionMetadata) -> int | None:
        """The epoch of the id's coordinator; None when that is not this broker any more, or not with this state of the id."""
        owned = self.transactions.owner_of(txn.transactional_id, txn)
        return None if owned is None else owned.leader_epoch

    def _coordinates(self, txn: TransactionMetadata) -> bool:
        """Whether this broker still coordinates the id, with this state of it."""
        return self.transactions.owner_of(txn.transactional_id, txn) is not None

    # -- what there is -----------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> tuple[ErrorCode, TransactionMetadata | None]:
        """The current state of the id, or the error."""
        error, txn = self.transactions.find(transactional_id)
        if not error and txn is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return error, txn

    def list(self) -> tuple[ErrorCode, Iterable[TransactionMetadata]]:
        """All transactional ids that are coordinated here; none while some are loading. They may change while they are iterated over."""
        if not self.transactions.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if self.transactions.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        return ErrorCode.NONE, self.transactions

    @property
    def load_times(self) -> LoadTimes:
        """How long partitions of `__transaction_state` took to load."""
        return self._elections.load_times

    def _find(self, transactional_id: str) -> tuple[ErrorCode, TransactionMetadata | None]:
        """The id in a request of a producer, or the error."""
        error, txn = self.transactions.find(transactional_id)
        if not error and txn is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        return error, txn
