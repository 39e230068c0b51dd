"""Drives a transactional id by random sequences of events, and compares with a model that has neither transitions nor records.

The model knows the open partitions, the outcome that is decided, and the producer. Clients speak version 0 or 2, and change it as they
like; the level of transaction.version rises and falls. At any moment the coordinator may be replaced by one that reads the log.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordination.transactions.effects import AfterComplete, ProducerResult
from ottla.coordination.transactions.log_records import read_value, transaction_value
from ottla.coordination.transactions.metadata import (
    FINISHED,
    PREPARED,
    VERSION_0,
    VERSION_2,
    TransactionMetadata,
    TransactionState,
    TransitMetadata,
)
from ottla.protocol.errors import ErrorCode
from ottla.storage.producers.state import MAX_EPOCH
from tests.support.pauses import at_once
from tests.support.transaction_driver import TIMEOUT_MS, TransactionDriver

E = ErrorCode
S = TransactionState

ERRORS = st.sampled_from([E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR])
INDEXES = st.frozensets(st.integers(0, 4), min_size=1, max_size=3)
EPOCHS_BEFORE_THE_LAST = st.sampled_from([0, 0, 0, 1, 2, 3])
VERSIONS = st.sampled_from([VERSION_0, VERSION_2])


class Model:
    """What producers and readers may rely on."""

    def __init__(self) -> None:
        self.open: frozenset[int] | None = None
        """Partitions of the open transaction, None without one."""
        self.decided: bool | None = None
        """The outcome whose markers are missing."""
        self.ended: bool | None = None
        """The outcome of the last transaction, for a producer that repeats its request; None for a new producer."""
        self.producer = (0, -1)
        self.replaced: tuple[int, int] | None = None
        """The producer before an end that gave a new producer id."""
        self.has_bumped = False
        """Whether the epoch was bumped for an abort that is not stored, so that the next abort does not bump it again."""
        self.is_stored = True
        """Whether the log has the epoch."""

    def refuses(self, producer: tuple[int, int]) -> ErrorCode:
        if producer[0] != self.producer[0]:
            return E.INVALID_PRODUCER_ID_MAPPING
        return E.NONE if producer[1] == self.producer[1] != MAX_EPOCH else E.PRODUCER_FENCED

    def is_repeated(self, producer: tuple[int, int]) -> bool:
        """Whether the epoch shows that an EndTxn of version 2 comes once more."""
        return self.ended is not None and producer in (self.replaced, (self.producer[0], self.producer[1] - 1))


class Transactions(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver(stores_at_once=False, marks_at_once=False)
        self.model = Model()
        self.model.producer = self.driver.producer
        self.then: Callable[[], None] | None = None
        """What is true once the record in flight is safe."""
        self.given: list[tuple[int, int]] = []
        self.outcomes: list[tuple[bool, frozenset[int]]] = []
        self.asked = 0
        self.log: list[bytes] = []

    # -- events ------------------------------------------------------------------------------------------------------------

    @rule(near_the_end=st.integers(0, 30))
    @precondition(lambda self: not self.log and not self.driver.stores)
    def begin(self, near_the_end: int) -> None:
        """The id is used for the first time; some are old, and their epochs nearly used up."""
        if near_the_end < 4:
            self.driver.txn.producer_epoch = MAX_EPOCH - 2 - near_the_end
            self.model.producer = self.driver.producer
        self.init_producer()

    @rule()
    @precondition(lambda self: self.log)
    def init_producer(self) -> None:
        """A new instance of the producer."""
        self.init(None)

    @rule(back=st.integers(-1, 2))
    @precondition(lambda self: self.log)
    def go_on(self, back: int) -> None:
        """The producer goes on after an error: the present one, an older one, or one from the future."""
        producer_id, epoch = self.model.producer
        if epoch - back >= 0:
            self.init((producer_id, epoch - back))

    @rule(level=st.integers(0, 2))
    def finalise(self, level: int) -> None:
        self.driver.level = level

    @rule(indexes=INDEXES, back=EPOCHS_BEFORE_THE_LAST, version=VERSIONS)
    @precondition(lambda self: self.log)
    def add(self, indexes: frozenset[int], back: int, version: int) -> None:
        model = self.model
        self.driver.version = version
        speaker = (model.producer[0], model.producer[1] - back)
        was_open = model.open
        expected = self.refuses(speaker)
        answer = self.driver.add({"t": indexes}, speaker)
        if expected or (was_open is not None and indexes <= was_open):
            assert answer == expected
            return

        def added() -> None:
            model.open = indexes | (was_open or frozenset())

        self.stores(added)

    @rule(is_commit=st.booleans(), back=EPOCHS_BEFORE_THE_LAST, version=VERSIONS)
    @precondition(lambda self: self.log)
    def end(self, is_commit: bool, back: int, version: int) -> None:
        model = self.model
        self.driver.version = version
        speaker = (model.producer[0], model.producer[1] - back)
        if back == 3 and model.replaced is not None:
            speaker = model.replaced
        is_repeated = version == VERSION_2 and not self.is_busy and model.is_repeated(speaker)
        expected = E.NONE if is_repeated else self.refuses(speaker)
        answer = self.driver.end(is_commit, speaker)
        if expected:
            assert answer == expected
        elif model.open is not None or (version == VERSION_2 and not is_repeated and not is_commit):
            self.stores(lambda: self.decide(is_commit, version))
        elif is_repeated or version == VERSION_0:
            assert answer == (E.NONE if model.ended is is_commit else E.INVALID_TXN_STATE)
        else:
            assert answer == E.INVALID_TXN_STATE

    @rule(late=st.booleans())
    @precondition(lambda self: self.log)
    def look_for_timeouts(self, late: bool) -> None:
        is_due = self.model.open is not None and not self.is_busy
        began = self.driver.txn.start_ms
        self.driver.time_out(TIMEOUT_MS + 1 if late else 10)
        if is_due and self.driver.now_ms > began + TIMEOUT_MS:
            self.fence()
        else:
            assert not self.driver.stores or self.is_busy
            self.driver.answers[self.waiters] = E.NONE  # there was nothing to do, and no one is told

    @rule(fails=st.booleans(), error=ERRORS)
    @precondition(lambda self: self.driver.stores)
    def finish_store(self, fails: bool, error: ErrorCode) -> None:
        store = self.driver.stores[0]
        is_end = isinstance(store.then, AfterComplete)
        if not fails:
            self.log.append(at_once(transaction_value(store.transit, int(self.driver.level >= 1 or store.transit.client_version >= 1))))
        if is_end:
            self.driver.finish_store(error if fails else E.NONE)
            if not fails:
                self.complete(store.transit)
            return
        then, self.then = self.then, None
        assert then is not None
        self.driver.finish_store(error if fails else E.NONE)
        if not fails:
            self.model.is_stored = True
            then()

    @rule()
    @precondition(lambda self: self.driver.unmarked)
    def finish_markers(self) -> None:
        self.driver.finish_markers()
        is_commit, partitions = self.driver.markers[-1]
        assert is_commit == self.model.decided
        assert partitions == ({"t": self.outcomes[-1][1]} if self.outcomes[-1][1] else {})

    @rule()
    @precondition(lambda self: self.log)
    def replace_coordinator(self) -> None:
        """Another broker reads the log: what is in flight is lost, or its requests were told so."""
        driver, model = self.driver, self.model
        before = driver.txn
        driver.txn = read_value("id", self.log[-1])
        if self.then is None and not driver.stores:
            self.compare(before, driver.txn)
        driver.stores.clear()
        driver.unmarked.clear()
        driver.answers.update((waiter, E.NOT_COORDINATOR) for waiter in range(1, self.waiters + 1) if waiter not in driver.answers)
        self.then = None
        model.producer = driver.producer
        model.has_bumped, model.is_stored = False, True
        driver.load()

    # -- what follows ------------------------------------------------------------------------------------------------------

    def init(self, expected: tuple[int, int] | None) -> None:
        driver, model = self.driver, self.model
        last = (driver.txn.previous_producer_id, driver.txn.last_producer_epoch)
        busy = self.is_busy
        answer = driver.init(expected)
        if driver.stores and not busy:
            if model.open is not None:
                assert expected is None or expected[0] == model.producer[0]
                self.fence()
            else:
                transit = driver.stores[-1].transit
                given = (transit.producer_id, transit.producer_epoch)
                assert expected is None or expected == model.producer or expected[1] == last[1]
                self.stores(lambda: self.give(given, expected))
        else:
            assert isinstance(answer, ProducerResult)
            exhausted = (E.UNKNOWN_SERVER_ERROR,) if driver.txn.is_epoch_exhausted else ()
            assert answer.error in ((E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED) if busy else (E.PRODUCER_FENCED, *exhausted))

    def give(self, given: tuple[int, int], expected: tuple[int, int] | None) -> None:
        if self.model.producer == given:
            assert expected is not None, "only a repetition gets the same epoch again"
        else:
            assert given not in self.given
            assert given[0] != self.model.producer[0] or given[1] == self.model.producer[1] + 1
            self.given.append(given)
        self.model.producer = given
        self.model.ended = self.model.replaced = None

    def fence(self) -> None:
        """The transaction is to be aborted. At level 2 the outcome raises the epoch, else it is bumped at once; only once if that is not
        stored."""
        if self.driver.level == VERSION_2:
            self.stores(lambda: self.decide(False, VERSION_2))
            return
        if not self.model.has_bumped:
            producer_id, epoch = self.model.producer
            self.model.producer = (producer_id, epoch + 1)
            self.model.is_stored = False
        self.model.has_bumped = True
        self.stores(lambda: self.decide(False, VERSION_0))

    def decide(self, is_commit: bool, version: int) -> None:
        model = self.model
        self.outcomes.append((is_commit, model.open or frozenset()))
        model.decided, model.open = is_commit, None
        model.has_bumped = False
        if version == VERSION_2:
            producer_id, epoch = model.producer
            model.producer = (producer_id, min(epoch + 1, MAX_EPOCH))

    def complete(self, transit: TransitMetadata) -> None:
        """The end is stored: a producer without another epoch has a new producer id now."""
        model = self.model
        model.ended, model.decided, model.replaced = model.decided, None, None
        if transit.producer_id != model.producer[0]:
            assert model.producer[1] == MAX_EPOCH
            model.replaced = (model.producer[0], MAX_EPOCH - 1)
            model.producer = (transit.producer_id, 0)
            self.given.append(model.producer)

    def refuses(self, producer: tuple[int, int]) -> ErrorCode:
        """What keeps a request of the driver's version from the transaction."""
        busy = E.CONCURRENT_TRANSACTIONS if self.is_busy else E.NONE
        return (busy if self.driver.version == VERSION_2 else E.NONE) or self.model.refuses(producer) or busy

    def stores(self, then: Callable[[], None]) -> None:
        assert len(self.driver.stores) == 1
        assert self.then is None
        self.then = then

    @property
    def is_busy(self) -> bool:
        return self.then is not None or self.model.decided is not None

    @property
    def waiters(self) -> int:
        return self.driver.waiters

    def compare(self, memory: TransactionMetadata, loaded: TransactionMetadata) -> None:
        """Loading gives what memory had. A bumped epoch may be missing in the log, and some markers may have been written."""
        assert loaded.state is memory.state
        assert loaded.producer_id == memory.producer_id
        assert loaded.producer_epoch == memory.producer_epoch - (not self.model.is_stored)
        assert (loaded.timeout_ms, loaded.last_update_ms) == (memory.timeout_ms, memory.last_update_ms)
        assert loaded.start_ms == memory.start_ms
        if memory.state not in PREPARED:
            assert loaded.partitions == memory.partitions

    # -- always true -------------------------------------------------------------------------------------------------------

    @invariant()
    def the_coordinator_says_what_the_model_says(self) -> None:
        txn, model = self.driver.txn, self.model
        assert self.driver.producer == model.producer
        assert (txn.state is S.ONGOING) == (model.open is not None)
        assert (txn.state in PREPARED) == (model.decided is not None)
        if model.open is not None:
            assert txn.partitions == {"t": model.open}

    @invariant()
    def at_most_one_record_is_in_flight(self) -> None:
        assert len(self.driver.stores) + len(self.driver.unmarked) <= 1

    def teardown(self) -> None:
        """No id is stuck, and no request is unanswered: with brokers that answer, the next producer has its turn."""
        while self.driver.stores or self.driver.unmarked:
            (self.finish_markers if self.driver.unmarked else self.succeed)()
        assert self.driver.state in FINISHED or self.model.open is not None
        for _ in range(2):
            self.driver.init()
            while self.driver.stores or self.driver.unmarked:
                self.driver.finish_markers() if self.driver.unmarked else self.driver.finish_store()
        answer = self.driver.answers[self.waiters]
        assert isinstance(answer, ProducerResult)
        assert answer.error == E.NONE
        assert self.driver.answers.keys() == set(range(1, self.waiters + 1))

    def succeed(self) -> None:
        self.finish_store(fails=False, error=E.NONE)


TestTransactions = pytest.mark.slow(Transactions.TestCase)
TestTransactions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
