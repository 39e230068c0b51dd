"""Drives a transactional id of a client of version 2 through its states by tables: what is answered, stored and marked (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.coordination.transactions.effects import ProducerResult
from ottla.coordination.transactions.log_records import read_value, transaction_value
from ottla.coordination.transactions.metadata import VERSION_0, VERSION_2, TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.storage.producers.state import MAX_EPOCH
from tests.support.pauses import at_once
from tests.support.transaction_driver import (
    FIRST_PRODUCER_ID,
    NOW,
    T0,
    T1,
    TransactionDriver,
    a_producer,
    an_open_transaction,
)

S = TransactionState
E = ErrorCode


def opened(*, marks_at_once: bool = True, stores_at_once: bool = True) -> TransactionDriver:
    return an_open_transaction(version=VERSION_2, level=2, marks_at_once=marks_at_once, stores_at_once=stores_at_once)


def ended(*, is_commit: bool, marks_at_once: bool = True) -> TransactionDriver:
    driver = opened(marks_at_once=marks_at_once)
    assert driver.end(is_commit) == E.NONE
    driver.stored.clear()
    return driver


def exhausted(*, marks_at_once: bool = True) -> TransactionDriver:
    """A transaction of the last epoch of its producer id."""
    driver = TransactionDriver(epoch=MAX_EPOCH - 2, version=VERSION_2, level=2, marks_at_once=marks_at_once)
    driver.init()
    driver.add()
    assert driver.producer == (FIRST_PRODUCER_ID, MAX_EPOCH - 1)
    return driver


IN_STATE: dict[TransactionState, Callable[[], TransactionDriver]] = {
    S.EMPTY: lambda: a_producer(version=VERSION_2, level=2),
    S.ONGOING: opened,
    S.PREPARE_COMMIT: lambda: ended(is_commit=True, marks_at_once=False),
    S.PREPARE_ABORT: lambda: ended(is_commit=False, marks_at_once=False),
    S.COMPLETE_COMMIT: lambda: ended(is_commit=True),
    S.COMPLETE_ABORT: lambda: ended(is_commit=False),
}
BUSY = {S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS, S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS}

COMMIT: dict[TransactionState, ErrorCode] = {
    S.EMPTY: E.INVALID_TXN_STATE,
    S.ONGOING: E.NONE,
    S.COMPLETE_COMMIT: E.INVALID_TXN_STATE,
    S.COMPLETE_ABORT: E.INVALID_TXN_STATE,
} | BUSY
ABORT = dict.fromkeys(IN_STATE, E.NONE) | BUSY
REPEATED_COMMIT = dict.fromkeys(IN_STATE, E.PRODUCER_FENCED) | BUSY | {S.COMPLETE_COMMIT: E.NONE, S.COMPLETE_ABORT: E.INVALID_TXN_STATE}
REPEATED_ABORT = REPEATED_COMMIT | {S.COMPLETE_COMMIT: E.INVALID_TXN_STATE, S.COMPLETE_ABORT: E.NONE}


@pytest.mark.parametrize(("state", "error"), COMMIT.items())
def test_a_commit_is_answered_by_the_state(state: TransactionState, error: ErrorCode) -> None:
    driver = IN_STATE[state]()
    producer_id, epoch = driver.producer
    result = driver.ended(True)
    assert result == (ProducerResult(error) if error else ProducerResult(E.NONE, producer_id, epoch + 1))
    assert [each.state for each in driver.stored] == ([S.PREPARE_COMMIT, S.COMPLETE_COMMIT] if state is S.ONGOING else [])


@pytest.mark.parametrize(("state", "error"), ABORT.items())
def test_an_abort_raises_the_epoch_in_every_state_without_markers_in_flight(state: TransactionState, error: ErrorCode) -> None:
    driver = IN_STATE[state]()
    producer_id, epoch = driver.producer
    driver.now_ms += 5
    result = driver.ended(False)
    if error:
        assert result == ProducerResult(error)
        assert driver.stored == []
        return
    assert result == ProducerResult(E.NONE, producer_id, epoch + 1)
    prepared, complete = driver.stored
    assert (prepared.state, prepared.producer_epoch, prepared.last_producer_epoch) == (S.PREPARE_ABORT, epoch + 1, epoch)
    assert prepared.start_ms == (NOW if state is S.ONGOING else NOW + 5)  # no partition began an empty transaction
    assert (complete.state, complete.producer_epoch, complete.client_version) == (S.COMPLETE_ABORT, epoch + 1, VERSION_2)


@pytest.mark.parametrize(("is_commit", "answers"), [(True, REPEATED_COMMIT), (False, REPEATED_ABORT)])
@pytest.mark.parametrize("state", IN_STATE)
def test_an_end_repeated_with_the_old_epoch_gets_the_answer_of_the_first(
    state: TransactionState, is_commit: bool, answers: dict[TransactionState, ErrorCode]
) -> None:
    driver = IN_STATE[state]()
    producer_id, epoch = driver.producer
    error = answers[state]
    result = driver.ended(is_commit, (producer_id, epoch - 1))
    assert result == (ProducerResult(error) if error else ProducerResult(E.NONE, producer_id, epoch))
    assert driver.stored == []


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_repeated_to_the_next_coordinator_gets_the_answer_of_the_first(is_commit: bool) -> None:
    driver = opened()
    old = driver.producer
    result = driver.ended(is_commit)
    driver.txn = read_value("id", at_once(transaction_value(driver.stored[-1], 1)))
    assert driver.ended(is_commit, old) == result == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 1)


def test_markers_have_the_raised_epoch() -> None:
    driver = opened()
    assert driver.end(True) == E.NONE
    assert driver.marking == [(FIRST_PRODUCER_ID, 1)]


def test_a_late_request_of_the_ended_transaction_is_fenced() -> None:
    driver = ended(is_commit=False)
    late = (FIRST_PRODUCER_ID, 0)
    assert driver.add(T1, late) == E.PRODUCER_FENCED
    assert driver.verify(late) == E.PRODUCER_FENCED
    assert driver.add(T1) == E.NONE
    assert driver.end(False, late) == E.PRODUCER_FENCED
    assert driver.state is S.ONGOING


def test_while_a_transition_is_in_flight_every_producer_waits() -> None:
    driver = opened(marks_at_once=False)
    assert driver.end(True) == E.NONE
    for producer in (driver.producer, (FIRST_PRODUCER_ID, 0), (FIRST_PRODUCER_ID + 5, 0)):
        assert driver.add(T1, producer) == E.CONCURRENT_TRANSACTIONS
        assert driver.end(True, producer) == E.CONCURRENT_TRANSACTIONS


def test_requests_of_another_producer_change_nothing() -> None:
    driver = opened()
    producer_id, epoch = driver.producer
    for producer, error in (
        ((producer_id + 1, epoch), E.INVALID_PRODUCER_ID_MAPPING),
        ((producer_id, epoch - 1), E.PRODUCER_FENCED),
        ((producer_id, epoch + 1), E.PRODUCER_FENCED),
    ):
        assert driver.add(T1, producer) == error
        assert driver.end(True, producer) == error
        assert driver.end(False, producer) == error
    assert driver.stored == []


# -- used up epochs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_the_last_epoch_gives_a_new_producer_id(is_commit: bool) -> None:
    driver = exhausted(marks_at_once=False)
    driver.stored.clear()
    assert driver.ended(is_commit) == ProducerResult(E.NONE, FIRST_PRODUCER_ID + 1, 0)
    (prepared,) = driver.stored
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (
        FIRST_PRODUCER_ID,
        MAX_EPOCH,
        FIRST_PRODUCER_ID + 1,
    )
    assert driver.add(T1, (FIRST_PRODUCER_ID + 1, 0)) == E.CONCURRENT_TRANSACTIONS
    driver.finish_markers()
    assert driver.marking == [(FIRST_PRODUCER_ID, MAX_EPOCH)]
    complete = driver.stored[-1]
    assert (complete.producer_id, complete.producer_epoch, complete.next_producer_id) == (FIRST_PRODUCER_ID + 1, 0, -1)
    assert complete.previous_producer_id == FIRST_PRODUCER_ID
    again = driver.ended(is_commit, (FIRST_PRODUCER_ID, MAX_EPOCH - 1))
    assert again == ProducerResult(E.NONE, FIRST_PRODUCER_ID + 1, 0)
    assert driver.end(not is_commit, (FIRST_PRODUCER_ID, MAX_EPOCH - 1)) == E.INVALID_TXN_STATE
    assert driver.add(T1) == E.NONE


def test_the_next_coordinator_puts_the_next_producer_id_into_use() -> None:
    driver = exhausted(marks_at_once=False)
    driver.end(True)
    driver.txn = read_value("id", at_once(transaction_value(driver.stored[-1], 1)))
    driver.unmarked.clear()
    driver.load()
    driver.finish_markers()
    assert driver.producer == (FIRST_PRODUCER_ID + 1, 0)
    assert driver.ended(True, (FIRST_PRODUCER_ID, MAX_EPOCH - 1)) == ProducerResult(E.NONE, FIRST_PRODUCER_ID + 1, 0)


def test_without_a_new_producer_id_the_end_is_tried_again() -> None:
    driver = exhausted()
    driver.has_producer_ids = False
    assert driver.ended(True) == ProducerResult(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert driver.init() == ProducerResult(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert driver.time_out() == E.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.state is S.ONGOING
    driver.has_producer_ids = True
    assert driver.end(True) == E.NONE


# -- fences ------------------------------------------------------------------------------------------------------------------


def test_a_new_instance_aborts_with_the_next_epoch_and_gets_the_one_after_it() -> None:
    driver = opened()
    assert driver.init() == ProducerResult(E.CONCURRENT_TRANSACTIONS)
    assert driver.marking == [(FIRST_PRODUCER_ID, 1)]
    assert driver.end(True, (FIRST_PRODUCER_ID, 0)) == E.INVALID_TXN_STATE  # as after an abort of its own
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 2)
    assert driver.end(True, (FIRST_PRODUCER_ID, 0)) == E.PRODUCER_FENCED


def test_a_fence_that_is_not_stored_leaves_the_epoch() -> None:
    driver = opened(stores_at_once=False)
    driver.init()
    driver.finish_store(E.COORDINATOR_NOT_AVAILABLE)
    assert driver.producer == (FIRST_PRODUCER_ID, 0)
    assert not driver.txn.has_failed_epoch_fence
    assert driver.end(True) is None


@pytest.mark.parametrize("is_by_time", [True, False])
def test_a_fence_of_the_last_epoch_takes_a_new_producer_id(is_by_time: bool) -> None:
    driver = exhausted()
    assert driver.time_out() == E.NONE if is_by_time else driver.init() == ProducerResult(E.CONCURRENT_TRANSACTIONS)
    assert driver.producer == (FIRST_PRODUCER_ID + 1, 0)
    assert driver.marking == [(FIRST_PRODUCER_ID, MAX_EPOCH)]


def test_a_fence_above_the_last_epoch_that_failed_at_level_0_ends_with_a_new_producer_id() -> None:
    driver = TransactionDriver(epoch=MAX_EPOCH - 2, stores_at_once=False)
    driver.init()
    driver.finish_store()
    driver.add()
    driver.finish_store()
    driver.time_out()
    driver.finish_store(E.COORDINATOR_NOT_AVAILABLE)
    assert driver.producer == (FIRST_PRODUCER_ID, MAX_EPOCH)
    driver.level, driver.stores_at_once = 2, True
    assert driver.time_out() == E.NONE
    assert driver.marking == [(FIRST_PRODUCER_ID, MAX_EPOCH)]
    assert driver.producer == (FIRST_PRODUCER_ID + 1, 0)


# -- both versions -----------------------------------------------------------------------------------------------------------


def test_a_client_of_version_0_keeps_its_epoch_at_level_2() -> None:
    driver = an_open_transaction(level=2)
    assert driver.ended(True) == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 0)
    assert driver.end(True) == E.NONE  # nothing shows that it is repeated
    assert [each.client_version for each in driver.stored] == [VERSION_0, VERSION_0]


@pytest.mark.parametrize(("first", "second"), [(VERSION_0, VERSION_2), (VERSION_2, VERSION_0)])
def test_a_client_may_change_its_version_after_a_transaction(first: int, second: int) -> None:
    driver = an_open_transaction(version=first, level=2)
    for version in (first, second, first):
        driver.version = version
        producer_id, epoch = driver.producer
        assert driver.add(T0) == E.NONE
        assert driver.ended(True) == ProducerResult(E.NONE, producer_id, epoch + (version == VERSION_2))


def test_a_transaction_that_began_in_version_0_may_end_in_version_2() -> None:
    driver = an_open_transaction(level=2)
    driver.version = VERSION_2
    assert driver.ended(True) == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 1)
    assert driver.stored[-1].client_version == VERSION_2


def test_the_level_may_fall_while_a_transaction_of_version_2_is_open() -> None:
    driver = opened()
    driver.level = 0
    assert driver.init() == ProducerResult(E.CONCURRENT_TRANSACTIONS)
    assert driver.marking == [(FIRST_PRODUCER_ID, 1)]
    assert driver.stored[0].client_version == VERSION_0
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 2)
