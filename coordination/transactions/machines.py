"""Runs the state machines of transactional ids for `coordination/partitions`: loads, unloads and stores them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.coordination.partitions.owned import OwnedStates
from ottla.coordination.partitions.runner import EffectRunner
from ottla.coordination.partitions.topic_log import STORE_ERRORS, TopicLog, encode_pairs
from ottla.coordination.transactions.between import Between
from ottla.coordination.transactions.effects import AfterAdd, AfterComplete, Effect, SendMarkers, Store
from ottla.coordination.transactions.loading import TransactionLoader
from ottla.coordination.transactions.log_records import FIRST_FLEXIBLE, transaction_key, transaction_value
from ottla.coordination.transactions.markers import TransactionMarkers
from ottla.coordination.transactions.metadata import IllegalTransition, TransactionMetadata, TransactionState, TransitMetadata
from ottla.coordination.transactions.state import on_loaded, on_markers_written, on_stored
from ottla.large_table import LargeTable
from ottla.pauses import begin
from ottla.protocol.errors import ErrorCode
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.clock import Clock


class TransactionStats:
    """Counts the transactions that end on this coordinator.

    `on_left` is called for every change of state, with the former state and the time in it, ms.
    """

    __slots__ = ("aborts", "commits", "on_left", "timeouts")

    def __init__(self) -> None:
        self.commits = 0
        self.aborts = 0
        """All of them: of producers, of their next instances, and of timeouts."""
        self.timeouts = 0
        """Aborts that began because a transaction was open for longer than its producer allowed."""
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


logger = logging.getLogger(__name__)

STORE_RETRY_MS: Final = 100
"""Pause before the end of a transaction is appended again, ms."""


class TransactionMachines:
    """See the module. Implements `coordination.elections.StateKind` and `coordination.runner.Machines`."""

    __slots__ = ("_clock", "_level", "_log", "_owned", "_timing_wheel", "between", "log_append_retry_queue_size", "markers", "runner",
                 "stats")  # fmt: skip

    noun = "transactional ids"

    waits_for_replicas = True
    """A marker must not leave before its outcome is safe. Nor may a partition be confirmed whose record may yet be lost."""

    markers: TransactionMarkers

    def __init__(
        self, owned: OwnedStates[TransactionMetadata], log: TopicLog, timing_wheel: TimingWheel, clock: Clock, level: Callable[[], int]
    ) -> None:
        """`level` is that of transaction.version. `markers` is set by the coordinator."""
        self._owned = owned
        self._log = log
        self._clock = clock
        self._level = level
        self._timing_wheel = timing_wheel
        self.log_append_retry_queue_size = 0
        """Transactions whose end could not be appended yet (LogAppendRetryQueueSize)."""
        self.stats = TransactionStats()
        self.between = Between(timing_wheel)
        self.runner: EffectRunner[TransactionMetadata, Store | SendMarkers] = EffectRunner(self, timing_wheel)

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
            self.runner.run(state, effects)

    def on_unloaded(self, states: LargeTable[str, TransactionMetadata]) -> None:
        """Another broker coordinates the transactional ids; appends in flight fail, and their requests are answered.

        Of a million ids only those with markers to write are visited.
        """
        self.markers.forget_lost()
        self.between.end_lost(lambda txn: not self._coordinates(txn))

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
        self.runner.run(txn, on_markers_written(completion))

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
        owned = self._owned.owner_of(txn.transactional_id, txn)
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
        self.runner.run(txn, effects)
        if isinstance(store.then, AfterComplete | AfterAdd):
            self.between.end(txn)

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
        owned = self._owned.owner_of(txn.transactional_id, txn)
        return None if owned is None else owned.leader_epoch

    def _coordinates(self, txn: TransactionMetadata) -> bool:
        """Whether this broker still coordinates the id, with this state of it."""
        return self._owned.get(txn.transactional_id) is txn
