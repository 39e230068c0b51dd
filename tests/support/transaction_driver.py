"""Drives the state machine of one transactional id by hand: events in, effects out. No clock, no log."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordination.partitions.effects import Reply
from ottla.coordination.transactions.effects import AfterComplete, Effect, ProducerResult, SendMarkers, Store
from ottla.coordination.transactions.metadata import VERSION_0, ProducerIdAndEpoch, TransactionMetadata, TransactionState, TransitMetadata
from ottla.coordination.transactions.partitions import Partitions
from ottla.coordination.transactions.state import (
    on_add_partitions,
    on_end,
    on_init_producer_id,
    on_loaded,
    on_markers_written,
    on_stored,
    on_timeout,
    verify,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH

NOW = 1_700_000_000_000
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1_000
T0: Partitions = {"t": frozenset({0})}
T1: Partitions = {"t": frozenset({1})}
T0_AND_1: Partitions = {"t": frozenset({0, 1})}


class TransactionDriver:
    """Carries out effects: replies are kept by waiter, records and markers are written at once, or when the test says so.

    Waiters are numbers. `stored` has every record that was safe, `markers` every outcome that was sent to the partitions. `version` is that
    of the client, `level` that of transaction.version.
    """

    def __init__(
        self,
        *,
        stores_at_once: bool = True,
        marks_at_once: bool = True,
        epoch: int = NO_PRODUCER_EPOCH,
        version: int = VERSION_0,
        level: int = 0,
    ) -> None:
        self.version = version
        self.level = level
        self.now_ms = NOW
        self.producer_ids = iter(range(FIRST_PRODUCER_ID + 1, FIRST_PRODUCER_ID + 100))
        self.has_producer_ids = True
        self.txn = TransactionMetadata("id", FIRST_PRODUCER_ID, epoch, TIMEOUT_MS, NOW)
        self.stores_at_once = stores_at_once
        self.marks_at_once = marks_at_once
        self.answers: dict[int, ErrorCode | ProducerResult] = {}
        self.stores: list[Store] = []
        self.unmarked: list[SendMarkers] = []
        self.stored: list[TransitMetadata] = []
        self.markers: list[tuple[bool, Partitions]] = []
        self.marking: list[tuple[int, int]] = []
        """The producer id and epoch of each of the outcomes."""
        self._waiters = 0

    # -- events ------------------------------------------------------------------------------------------------------------

    def init(self, expected: tuple[int, int] | None = None, *, timeout_ms: int = TIMEOUT_MS) -> ProducerResult | None:
        """InitProducerId; None while it is not answered."""
        known = None if expected is None else ProducerIdAndEpoch(*expected)
        waiter = self._waiter()
        self.run(on_init_producer_id(self.txn, waiter, timeout_ms, known, self.level, self._new_producer_id, self.now_ms))
        answer = self.answers.get(waiter)
        assert answer is None or isinstance(answer, ProducerResult)
        return answer

    def add(self, partitions: Partitions = T0, producer: tuple[int, int] | None = None) -> ErrorCode | None:
        """AddPartitionsToTxn; None while it is not answered."""
        waiter = self._waiter()
        self.run(on_add_partitions(self.txn, waiter, self._producer(producer), partitions, self.version, self.now_ms))
        return self._error(waiter)

    def end(self, is_commit: bool, producer: tuple[int, int] | None = None) -> ErrorCode | None:
        """EndTxn; None while it is not answered."""
        result = self.ended(is_commit, producer)
        return None if result is None else result.error

    def ended(self, is_commit: bool, producer: tuple[int, int] | None = None) -> ProducerResult | None:
        """EndTxn with all that is answered; None while it is not."""
        waiter = self._waiter()
        self.run(on_end(self.txn, waiter, self._producer(producer), is_commit, self.version, self._new_producer_id, self.now_ms))
        answer = self.answers.get(waiter)
        assert answer is None or isinstance(answer, ProducerResult)
        return answer

    def verify(self, producer: tuple[int, int] | None = None) -> ErrorCode:
        """AddPartitionsToTxn that only verifies."""
        return verify(self.txn, self._producer(producer))

    def time_out(self, after_ms: int = TIMEOUT_MS + 1) -> ErrorCode | None:
        """The coordinator looks for timeouts after some time; None when there was none, or it is not stored yet."""
        self.now_ms += after_ms
        waiter = self._waiter()
        self.run(on_timeout(self.txn, waiter, self.level, self._new_producer_id, self.now_ms))
        answer = self.answers.get(waiter)
        assert answer is None or isinstance(answer, ProducerResult)
        return None if answer is None else answer.error

    def load(self) -> None:
        """The id was read from the log."""
        self.run(on_loaded(self.txn, self.now_ms))

    def finish_store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest unfinished append is done."""
        store = self.stores.pop(0)
        if not error:
            self.stored.append(store.transit)
        elif isinstance(store.then, AfterComplete):
            self.stores.append(store)  # `machines` appends it again
            return
        self.run(on_stored(self.txn, store.transit, store.then, error, self.now_ms))

    def finish_markers(self) -> None:
        """The partitions of the oldest unfinished transaction have their markers."""
        sent = self.unmarked.pop(0)
        self.markers.append((sent.is_commit, self.txn.partitions))
        self.marking.append(self.producer)
        self.txn.remove_partitions(self.txn.partitions)
        self.run(on_markers_written(sent.completion))

    # -- outcomes ----------------------------------------------------------------------------------------------------------

    def run(self, effects: Iterable[Effect]) -> None:
        """Carry out effects."""
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.waiter, int)
                assert effect.waiter not in self.answers, f"waiter {effect.waiter} was answered already"
                assert isinstance(effect.result, ErrorCode | ProducerResult)
                self.answers[effect.waiter] = effect.result
            elif isinstance(effect, Store):
                self.stores.append(effect)
                if self.stores_at_once:
                    self.finish_store()
            else:
                assert isinstance(effect, SendMarkers)
                self.unmarked.append(effect)
                if self.marks_at_once:
                    self.finish_markers()

    @property
    def state(self) -> TransactionState:
        """The state of the id."""
        return self.txn.state

    @property
    def producer(self) -> tuple[int, int]:
        """Producer id and epoch as the coordinator knows them."""
        return self.txn.producer_id, self.txn.producer_epoch

    def _producer(self, given: tuple[int, int] | None) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(*(given or self.producer))

    def _error(self, waiter: int) -> ErrorCode | None:
        answer = self.answers.get(waiter)
        assert answer is None or isinstance(answer, ErrorCode)
        return answer

    @property
    def waiters(self) -> int:
        """How many requests there were; their numbers begin with 1."""
        return self._waiters

    def _waiter(self) -> int:
        self._waiters += 1
        return self._waiters

    def _new_producer_id(self) -> int | None:
        return next(self.producer_ids) if self.has_producer_ids else None


def a_producer(*, stores_at_once: bool = True, marks_at_once: bool = True, version: int = VERSION_0, level: int = 0) -> TransactionDriver:
    """A producer that has its producer id, and no transaction."""
    driver = TransactionDriver(stores_at_once=stores_at_once, marks_at_once=marks_at_once, version=version, level=level)
    driver.init()
    while driver.stores:
        driver.finish_store()
    assert driver.state is TransactionState.EMPTY
    driver.stored.clear()
    return driver


def an_open_transaction(
    *, stores_at_once: bool = True, marks_at_once: bool = True, version: int = VERSION_0, level: int = 0
) -> TransactionDriver:
    """A producer with one partition in its transaction."""
    driver = a_producer(stores_at_once=stores_at_once, marks_at_once=marks_at_once, version=version, level=level)
    driver.add()
    while driver.stores:
        driver.finish_store()
    assert driver.state is TransactionState.ONGOING
    driver.stored.clear()
    return driver
