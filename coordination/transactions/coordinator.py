"""Coordinates transactions: connects the state machines of the transactional ids with log, timers and connections. Kafka's
TransactionCoordinator.

Checks that this broker coordinates the id, passes the event to its state machine (`state`) and carries out the effects (`machines`).
Handlers call it. Every `reply` is called exactly once, at once or when the record of the transition is on all in-sync replicas.

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
from ottla.coordination.partitions.topic_log import TopicLog
from ottla.coordination.transactions.effects import ProducerResult
from ottla.coordination.transactions.expiration import TransactionExpiration
from ottla.coordination.transactions.machines import TransactionMachines
from ottla.coordination.transactions.markers import PartitionsOf, TransactionMarkers, WriteHere, WriteMarkers
from ottla.coordination.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata
from ottla.coordination.transactions.partitions import Partitions
from ottla.coordination.transactions.state import NewProducerId, must_wait, on_add_partitions, on_end, on_init_producer_id, verify
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


class TransactionCoordinator:
    """See the module."""

    __slots__ = ("_clock", "_config", "_elections", "_expiration", "_level", "_log", "_new_producer_id", "machines", "markers",
                 "transactions")  # fmt: skip

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
            TRANSACTION_STATE_TOPIC, cluster, config[TRANSACTION_STATE_LOG_NUM_PARTITIONS]
        )
        self._log = TopicLog(TRANSACTION_STATE_TOPIC, replica_manager, produce_purgatory, clock, timeout_ms=config[REQUEST_TIMEOUT_MS])
        self.machines = machines = TransactionMachines(self.transactions, self._log, timing_wheel, clock, level)
        self.markers = machines.markers = TransactionMarkers(
            cluster,
            config.listeners.inter_broker_listener_name,
            write_markers,
            partitions_of,
            machines.coordinator_epoch,
            timing_wheel,
            clock.monotonic,
            machines.on_markers_written,
            markers_here,
        )
        self._elections: Elections[TransactionMetadata] = Elections(
            self.transactions, machines, clock, workers, config[TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE], while_loading
        )

        self._expiration = TransactionExpiration(
            self.transactions,
            machines,
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
        self._expiration.start()

    async def stop(self) -> None:
        """Answer waiting requests, and accept no more."""
        self.transactions.is_active = False
        await self._expiration.stop()
        await self._elections.stop()
        self._elections.unload_all()
        self.machines.runner.finish()
        await self.markers.close()

    def on_leadership_change(self, partition: Partition) -> None:
        """A partition of this broker has a new leader, or is no longer hosted here."""
        self._elections.on_leadership_change(partition)

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
        error = ErrorCode.NONE
        if not transactional_id:
            error = ErrorCode.INVALID_REQUEST
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
        self.machines.runner.run(txn, effects)

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
            self.machines.between.wait(txn, partial(self._add_late, transactional_id, producer, partitions, client_version, reply))
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
        self.machines.runner.run(txn, on_add_partitions(txn, reply, producer, partitions, client_version, self._clock.now_ms()))

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
        self.machines.runner.run(txn, on_end(txn, reply, producer, is_commit, client_version, self._new_producer_id, now_ms))

    # -- what there is -----------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> tuple[ErrorCode, TransactionMetadata | None]:
        """The current state of the id, or the error."""
        if not self.transactions.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
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
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        error, txn = self.transactions.find(transactional_id)
        if not error and txn is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        return error, txn
