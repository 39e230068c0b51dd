"""Drives a transactional id through its states by tables: what each request is answered in each state, and what is stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.coordination.transactions.effects import ProducerResult
from ottla.coordination.transactions.metadata import PREVIOUS_STATES, VERSION_0, IllegalTransition, TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.storage.producers.state import MAX_EPOCH
from tests.support.transaction_driver import (
    FIRST_PRODUCER_ID,
    NOW,
    T0,
    T0_AND_1,
    T1,
    TIMEOUT_MS,
    TransactionDriver,
    a_producer,
    an_open_transaction,
)

S = TransactionState
E = ErrorCode


def prepared(*, is_commit: bool) -> TransactionDriver:
    driver = an_open_transaction(marks_at_once=False)
    assert driver.end(is_commit) == E.NONE
    driver.stored.clear()
    return driver


def completed(*, is_commit: bool) -> TransactionDriver:
    driver = an_open_transaction()
    assert driver.end(is_commit) == E.NONE
    driver.stored.clear()
    return driver


IN_STATE: dict[TransactionState, Callable[[], TransactionDriver]] = {
    S.EMPTY: a_producer,
    S.ONGOING: an_open_transaction,
    S.PREPARE_COMMIT: lambda: prepared(is_commit=True),
    S.PREPARE_ABORT: lambda: prepared(is_commit=False),
    S.COMPLETE_COMMIT: lambda: completed(is_commit=True),
    S.COMPLETE_ABORT: lambda: completed(is_commit=False),
}

COMMIT: dict[TransactionState, ErrorCode] = {
    S.EMPTY: E.INVALID_TXN_STATE,
    S.ONGOING: E.NONE,
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
    S.COMPLETE_COMMIT: E.NONE,
    S.COMPLETE_ABORT: E.INVALID_TXN_STATE,
}
ABORT = COMMIT | {S.COMPLETE_COMMIT: E.INVALID_TXN_STATE, S.COMPLETE_ABORT: E.NONE}
ADD = dict.fromkeys(IN_STATE, E.NONE) | dict.fromkeys((S.PREPARE_COMMIT, S.PREPARE_ABORT), E.CONCURRENT_TRANSACTIONS)
INIT = ADD | {S.ONGOING: E.CONCURRENT_TRANSACTIONS}


@pytest.mark.parametrize("state", IN_STATE)
def test_the_state_of_the_tables_is_reached(state: TransactionState) -> None:
    assert IN_STATE[state]().state is state


@pytest.mark.parametrize(("state", "error"), COMMIT.items())
def test_a_commit_is_answered_by_the_state(state: TransactionState, error: ErrorCode) -> None:
    driver = IN_STATE[state]()
    assert driver.end(True) == error
    assert [each.state for each in driver.stored] == ([S.PREPARE_COMMIT, S.COMPLETE_COMMIT] if state is S.ONGOING else [])


@pytest.mark.parametrize(("state", "error"), ABORT.items())
def test_an_abort_is_answered_by_the_state(state: TransactionState, error: ErrorCode) -> None:
    driver = IN_STATE[state]()
    assert driver.end(False) == error
    assert [each.state for each in driver.stored] == ([S.PREPARE_ABORT, S.COMPLETE_ABORT] if state is S.ONGOING else [])


@pytest.mark.parametrize(("state", "error"), ADD.items())
def test_added_partitions_are_answered_by_the_state(state: TransactionState, error: ErrorCode) -> None:
    driver = IN_STATE[state]()
    driver.now_ms += 5
    assert driver.add(T1) == error
    if error:
        assert driver.stored == []
    else:
        (stored,) = driver.stored
        assert stored.partitions == (T0_AND_1 if state is S.ONGOING else T1)
        assert stored.start_ms == (NOW if state is S.ONGOING else NOW + 5)
        assert driver.state is S.ONGOING


@pytest.mark.parametrize(("state", "error"), INIT.items())
def test_a_new_instance_is_answered_by_the_state(state: TransactionState, error: ErrorCode) -> None:
    driver = IN_STATE[state]()
    answer = driver.init()
    if error:
        assert answer == ProducerResult(error)
    else:
        assert answer == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 1)
        assert [each.state for each in driver.stored] == [S.EMPTY]


@pytest.mark.parametrize("state", IN_STATE)
def test_requests_of_another_producer_change_nothing(state: TransactionState) -> None:
    driver = IN_STATE[state]()
    producer_id, epoch = driver.producer
    for producer, error in (
        ((producer_id + 1, epoch), E.INVALID_PRODUCER_ID_MAPPING),
        ((producer_id, epoch - 1), E.PRODUCER_FENCED),
        ((producer_id, epoch + 1), E.PRODUCER_FENCED),
    ):
        assert driver.add(T1, producer) == error
        assert driver.end(True, producer) == error
        assert driver.end(False, producer) == error
        assert driver.verify(producer) == error
    assert driver.state is state
    assert driver.stored == []


@pytest.mark.parametrize("state", IN_STATE)
def test_partitions_are_verified_unless_markers_are_written(state: TransactionState) -> None:
    error = E.CONCURRENT_TRANSACTIONS if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT) else E.NONE
    assert IN_STATE[state]().verify() == error


def test_partitions_that_are_in_already_are_not_stored_again() -> None:
    driver = an_open_transaction()
    assert driver.add(T0) == E.NONE
    assert driver.stored == []


def test_a_second_request_waits_for_the_record_of_the_first() -> None:
    driver = a_producer(stores_at_once=False)
    assert driver.add() is None
    assert driver.add(T1) == E.CONCURRENT_TRANSACTIONS
    assert driver.end(True) == E.CONCURRENT_TRANSACTIONS
    assert driver.init() == ProducerResult(E.CONCURRENT_TRANSACTIONS)
    driver.finish_store()
    assert driver.txn.partitions == T0


def test_markers_are_sent_when_the_outcome_is_stored_and_the_end_is_stored_when_they_are_written() -> None:
    driver = an_open_transaction(stores_at_once=False, marks_at_once=False)
    assert driver.end(True) is None
    assert driver.unmarked == []
    driver.finish_store()
    assert driver.state is S.PREPARE_COMMIT
    assert driver.stores == []
    driver.finish_markers()
    assert driver.markers == [(True, T0)]
    assert driver.state is S.PREPARE_COMMIT
    driver.finish_store()
    assert driver.state is S.COMPLETE_COMMIT
    assert driver.txn.partitions == {}


def test_the_end_is_stored_until_it_is_safe() -> None:
    driver = an_open_transaction(stores_at_once=False)
    driver.end(False)
    driver.finish_store()
    driver.finish_store(E.COORDINATOR_NOT_AVAILABLE)
    assert driver.state is S.PREPARE_ABORT
    assert driver.add() == E.CONCURRENT_TRANSACTIONS
    driver.finish_store()
    assert driver.state is S.COMPLETE_ABORT


@pytest.mark.parametrize("error", [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.UNKNOWN_SERVER_ERROR])
def test_a_record_that_is_not_stored_changes_nothing(error: ErrorCode) -> None:
    driver = an_open_transaction(stores_at_once=False)
    assert driver.end(True) is None
    driver.finish_store(error)
    assert list(driver.answers.values())[-1] == ProducerResult(error)
    assert driver.state is S.ONGOING
    assert driver.end(False) is None
    driver.finish_store()
    assert driver.state is S.PREPARE_ABORT


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_new_coordinator_sends_the_markers_of_a_decided_transaction(is_commit: bool) -> None:
    driver = prepared(is_commit=is_commit)
    driver.unmarked.clear()
    driver.txn.pending_state = None  # as it is read from the log
    driver.marks_at_once = True
    driver.load()
    assert driver.markers == [(is_commit, T0)]
    assert driver.state is (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_new_coordinator_leaves_other_transactions_as_they_are(state: TransactionState) -> None:
    driver = IN_STATE[state]()
    before = len(driver.markers)
    driver.load()
    assert (driver.state, driver.stored, len(driver.markers)) == (state, [], before)


# -- fences ------------------------------------------------------------------------------------------------------------------


def test_a_new_instance_aborts_the_open_transaction_and_gets_an_epoch_after_the_fence() -> None:
    driver = an_open_transaction()
    assert driver.init() == ProducerResult(E.CONCURRENT_TRANSACTIONS)
    assert driver.markers == [(False, T0)]
    assert driver.end(True, (FIRST_PRODUCER_ID, 0)) == E.PRODUCER_FENCED
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 2)


def test_a_timeout_aborts_the_transaction_and_fences_the_producer() -> None:
    driver = an_open_transaction()
    assert driver.time_out(TIMEOUT_MS) is None
    assert driver.state is S.ONGOING
    assert driver.time_out(1) == E.NONE
    assert driver.state is S.COMPLETE_ABORT
    assert driver.end(True, (FIRST_PRODUCER_ID, 0)) == E.PRODUCER_FENCED


@pytest.mark.parametrize("state", set(IN_STATE) - {S.ONGOING})
def test_only_open_transactions_time_out(state: TransactionState) -> None:
    driver = IN_STATE[state]()
    assert driver.time_out() is None
    assert driver.stored == []


def test_a_transaction_with_a_pending_record_does_not_time_out() -> None:
    driver = an_open_transaction(stores_at_once=False)
    assert driver.end(True) is None
    assert driver.time_out() is None
    assert [store.transit.state for store in driver.stores] == [S.PREPARE_COMMIT]


def test_a_fence_that_was_not_stored_bumps_the_epoch_once() -> None:
    driver = an_open_transaction(stores_at_once=False)
    assert driver.init() is None
    driver.finish_store(E.COORDINATOR_NOT_AVAILABLE)
    assert driver.producer == (FIRST_PRODUCER_ID, 1)
    assert driver.end(True, (FIRST_PRODUCER_ID, 0)) == E.PRODUCER_FENCED
    assert driver.init() is None
    assert driver.producer == (FIRST_PRODUCER_ID, 1)
    driver.finish_store()
    driver.finish_store()
    assert driver.state is S.COMPLETE_ABORT
    assert driver.stored[-1].producer_epoch == 1
    driver.stores_at_once = True
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 2)
    driver.add()
    driver.init()
    assert driver.producer == (FIRST_PRODUCER_ID, 3)


# -- going on after an error (KIP-360) ---------------------------------------------------------------------------------------


def test_a_producer_goes_on_with_the_next_epoch_and_may_repeat_that() -> None:
    driver = a_producer()
    bumped = ProducerResult(E.NONE, FIRST_PRODUCER_ID, 1)
    assert driver.init((FIRST_PRODUCER_ID, 0)) == bumped
    assert driver.init((FIRST_PRODUCER_ID, 0)) == bumped
    assert driver.init((FIRST_PRODUCER_ID, 1)) == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 2)
    assert driver.init((FIRST_PRODUCER_ID, 0)) == ProducerResult(E.PRODUCER_FENCED)


def test_a_producer_that_another_instance_replaced_is_fenced() -> None:
    driver = a_producer()
    driver.init()
    assert driver.init((FIRST_PRODUCER_ID, 0)) == ProducerResult(E.PRODUCER_FENCED)
    assert driver.init((FIRST_PRODUCER_ID + 7, 1)) == ProducerResult(E.PRODUCER_FENCED)
    assert driver.producer == (FIRST_PRODUCER_ID, 1)


def test_any_producer_may_begin_where_no_epoch_was_given_yet() -> None:
    driver = TransactionDriver()
    assert driver.init((77, 5)) == ProducerResult(E.NONE, FIRST_PRODUCER_ID, 0)


def test_a_new_timeout_comes_with_a_new_epoch() -> None:
    driver = a_producer()
    driver.init(timeout_ms=5_000)
    assert driver.stored[-1].timeout_ms == driver.txn.timeout_ms == 5_000


# -- the last epoch ----------------------------------------------------------------------------------------------------------


def test_a_used_up_epoch_leads_to_another_producer_id() -> None:
    driver = TransactionDriver(epoch=MAX_EPOCH - 2)
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID, MAX_EPOCH - 1)
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID + 1, 0)
    assert driver.txn.previous_producer_id == FIRST_PRODUCER_ID


def test_a_fence_may_use_the_last_epoch() -> None:
    driver = TransactionDriver(epoch=MAX_EPOCH - 2)
    driver.init()
    driver.add()
    assert driver.init() == ProducerResult(E.CONCURRENT_TRANSACTIONS)
    assert driver.producer == (FIRST_PRODUCER_ID, MAX_EPOCH)
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID + 1, 0)


def test_a_producer_may_repeat_the_request_that_changed_its_id() -> None:
    driver = TransactionDriver(epoch=MAX_EPOCH - 2)
    driver.init()
    exhausted = (FIRST_PRODUCER_ID, MAX_EPOCH - 1)
    rotated = ProducerResult(E.NONE, FIRST_PRODUCER_ID + 1, 0)
    assert driver.init(exhausted) == rotated
    assert driver.init(exhausted) == rotated
    assert driver.init((FIRST_PRODUCER_ID, 3)) == ProducerResult(E.PRODUCER_FENCED)


def test_a_producer_asks_again_while_there_is_no_producer_id() -> None:
    driver = TransactionDriver(epoch=MAX_EPOCH - 1)
    driver.has_producer_ids = False
    assert driver.init() == ProducerResult(E.COORDINATOR_LOAD_IN_PROGRESS)
    driver.has_producer_ids = True
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID + 1, 0)


# -- what no event leads to --------------------------------------------------------------------------------------------------


def test_every_state_but_the_first_has_previous_ones_and_no_transition_leads_elsewhere() -> None:
    assert set(PREVIOUS_STATES) == set(S)
    driver = prepared(is_commit=True)
    driver.txn.pending_state = None
    with pytest.raises(IllegalTransition):
        driver.txn.prepare_add_partitions(T1, NOW, VERSION_0)
    with pytest.raises(IllegalTransition):
        driver.txn.prepare_dead()


def test_partitions_are_only_taken_out_while_markers_are_written() -> None:
    with pytest.raises(IllegalTransition):
        an_open_transaction().txn.remove_partitions(T0)


def test_a_transition_that_is_not_pending_is_not_completed() -> None:
    driver = an_open_transaction(stores_at_once=False)
    driver.end(True)
    transit = driver.stores[0].transit
    driver.finish_store()
    with pytest.raises(IllegalTransition):
        driver.txn.complete_transition(transit)


def test_labels_are_kafkas_names() -> None:
    assert [state.label for state in S] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
    ]  # fmt: skip


def test_another_epoch_than_the_last_one_of_a_producer_id_is_refused_without_a_change() -> None:
    driver = TransactionDriver(epoch=MAX_EPOCH - 2)
    driver.init()
    assert driver.producer == (FIRST_PRODUCER_ID, MAX_EPOCH - 1)
    answer = driver.init((FIRST_PRODUCER_ID, MAX_EPOCH - 5))
    assert answer == ProducerResult(E.UNKNOWN_SERVER_ERROR)
    assert driver.producer == (FIRST_PRODUCER_ID, MAX_EPOCH - 1)
    assert driver.init() == ProducerResult(E.NONE, FIRST_PRODUCER_ID + 1, 0)
