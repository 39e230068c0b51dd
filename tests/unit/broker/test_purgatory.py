"""Delayed operations complete exactly once: by their condition, by their time, or not at all when nobody waits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.ports.waiters import Waiters
from ottla.replication.waiting.purgatory import DelayedOperation, Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from tests.support.timers import FakeTime


class Wait(DelayedOperation):
    """Completes when `ready`."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self.looks = 0
        self.events: list[str] = []

    def try_complete(self) -> bool:
        self.looks += 1
        return self.ready and self.force_complete()

    def on_expiration(self) -> None:
        self.events.append("expired")

    def on_complete(self) -> None:
        self.events.append("completed")


def a_purgatory(purge_interval: int = 1000) -> tuple[FakeTime, Purgatory]:
    time = FakeTime()
    return time, Purgatory("test", TimingWheel(time.clock, time.call_later), purge_interval)


def test_an_operation_that_is_ready_completes_at_once_and_is_not_watched() -> None:
    _, purgatory = a_purgatory()
    operation, waiters = Wait(), Waiters()
    operation.ready = True
    assert purgatory.try_complete_else_watch(operation, [waiters], 1000)
    assert operation.events == ["completed"]
    assert waiters.waiting == {}
    assert (purgatory.delayed, purgatory.watched) == (0, 0)


def test_one_that_its_maker_has_looked_at_waits_without_another_look() -> None:
    time, purgatory = a_purgatory()
    operation, other, waiters = Wait(), Wait(), Waiters()
    purgatory.watch(operation, waiters, 1000)
    purgatory.watch(other, waiters, 1000)
    assert (operation.looks, purgatory.delayed, purgatory.watched) == (0, 2, 2)
    operation.ready = True
    waiters.notify()
    time.advance(5000)
    assert (operation.events, other.events) == (["completed"], ["expired", "completed"])
    assert (purgatory.delayed, purgatory.watched, purgatory.expirations) == (0, 0, 1)


def test_one_that_has_no_time_to_wait_expires_at_once() -> None:
    _, purgatory = a_purgatory()
    operation, waiters = Wait(), Waiters()
    purgatory.watch(operation, waiters, 0)
    assert operation.events == ["expired", "completed"]
    assert waiters.waiting == {}


def test_after_an_error_of_one_operation_the_others_are_notified_and_it_expires(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Wait):
        def try_complete(self) -> bool:
            raise ValueError("a fault")

    time, purgatory = a_purgatory()
    faulty, ready, waiting, waiters = Faulty(), Wait(), Wait(), Waiters()
    for each in (faulty, ready, waiting):
        purgatory.watch(each, waiters, 1000)
    ready.ready = True
    waiters.notify()
    assert (faulty.events, ready.events, list(waiters.waiting)) == ([], ["completed"], [waiting])
    assert "a fault" in caplog.text
    time.advance(5000)
    assert faulty.events == waiting.events == ["expired", "completed"]


def test_waiters_are_notified_in_turn_as_long_as_there_is_something_for_them() -> None:
    _, purgatory = a_purgatory()
    operations = [Wait() for _ in range(5)]
    waiters = Waiters()
    for each in operations:
        purgatory.watch(each, waiters, 1000)
    operations[0].cancel()
    operations[2].ready = operations[4].ready = True
    left = [True, True, False]
    waiters.notify_while(lambda: left.pop(0))
    assert [each.completed for each in operations] == [True, False, True, False, False]
    assert list(waiters.waiting) == [operations[1], operations[3], operations[4]]
    assert left == []


def test_a_notification_completes_it_and_its_timer_is_gone() -> None:
    time, purgatory = a_purgatory()
    operation, waiters = Wait(), Waiters()
    assert not purgatory.try_complete_else_watch(operation, [waiters], 1000)
    waiters.notify()
    assert operation.events == []
    operation.ready = True
    waiters.notify()
    time.advance(5000)
    assert operation.events == ["completed"]
    assert purgatory.expirations == 0


def test_its_time_completes_it_and_it_hears_of_the_expiration_first() -> None:
    time, purgatory = a_purgatory()
    operation = Wait()
    purgatory.try_complete_else_watch(operation, [Waiters()], 1000)
    time.advance(1002)
    assert operation.events == ["expired", "completed"]
    assert purgatory.expirations == 1
    assert not operation.force_complete()


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_of_nothing_expires_in_the_call(timeout_ms: int) -> None:
    _, purgatory = a_purgatory()
    operation = Wait()
    assert purgatory.try_complete_else_watch(operation, [Waiters()], timeout_ms)
    assert operation.events == ["expired", "completed"]


def test_a_cancelled_operation_neither_answers_nor_expires() -> None:
    time, purgatory = a_purgatory()
    operation, waiters = Wait(), Waiters()
    purgatory.try_complete_else_watch(operation, [waiters], 1000)
    operation.cancel()
    operation.ready = True
    waiters.notify()
    time.advance(2000)
    assert operation.events == []
    assert purgatory.delayed == 0


def test_one_that_watches_several_lists_completes_by_whichever_moves_first() -> None:
    _, purgatory = a_purgatory()
    operation, lists = Wait(), [Waiters(), Waiters(), Waiters()]
    purgatory.try_complete_else_watch(operation, lists, 1000)
    assert (purgatory.delayed, purgatory.watched) == (1, 3)
    operation.ready = True
    lists[1].notify()
    lists[0].notify()
    assert operation.events == ["completed"]
    assert (purgatory.delayed, purgatory.watched) == (0, 0)


def test_lists_of_quiet_partitions_are_swept_of_what_is_complete() -> None:
    _, purgatory = a_purgatory(purge_interval=10)
    quiet, busy = Waiters(), Waiters()
    patient = Wait()
    purgatory.try_complete_else_watch(patient, [quiet], 10_000)
    for _ in range(40):
        operation = Wait()
        purgatory.try_complete_else_watch(operation, [quiet, busy], 10_000)
        operation.ready = True
        busy.notify()
    assert len(quiet.waiting) <= 12
    assert patient in quiet.waiting


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sets(st.integers(0, 3)), st.integers(0, 3000)),
            st.tuples(st.just("ready"), st.integers(0, 100), st.just(0)),
            st.tuples(st.just("notify"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("cancel"), st.integers(0, 100), st.just(0)),
            st.tuples(st.just("advance"), st.integers(0, 2000), st.just(0)),
        ),
        max_size=60,
    )
)
def test_every_operation_completes_at_most_once_and_none_is_forgotten(steps: list[tuple]) -> None:
    time, purgatory = a_purgatory(purge_interval=3)
    lists = [Waiters() for _ in range(4)]
    operations: list[Wait] = []
    cancelled: set[Wait] = set()
    for kind, value, timeout_ms in steps:
        if kind == "add":
            operations.append(Wait())
            purgatory.try_complete_else_watch(operations[-1], [lists[i] for i in value], timeout_ms)
        elif kind == "notify":
            lists[value].notify()
        elif kind == "advance":
            time.advance(value)
        elif operations:
            operation = operations[value % len(operations)]
            if kind == "ready":
                operation.ready = True
            elif not operation.completed:
                operation.cancel()
                cancelled.add(operation)
        assert purgatory.delayed == sum(not operation.completed for operation in operations)
    time.advance(10_000)
    for operation in operations:
        assert operation.events.count("completed") == (0 if operation in cancelled else 1)
    assert (purgatory.delayed, purgatory.watched) == (0, 0)


class Looked:
    """A waiter that counts how often somebody looks whether it has completed."""

    looks = 0

    def __init__(self) -> None:
        self.is_over = False

    @property
    def completed(self) -> bool:
        Looked.looks += 1
        return self.is_over

    def try_complete(self) -> bool:
        return self.is_over


def end_all(waiters: Waiters) -> None:
    for each in waiters.waiting:
        assert isinstance(each, Looked)
        each.is_over = True


def test_one_more_that_waits_costs_the_same_among_thousands_and_completed_ones_do_not_pile_up() -> None:
    Looked.looks = 0
    waiters = Waiters()
    pending = [Looked() for _ in range(4000)]
    for each in pending:
        waiters.add(each)
    assert Looked.looks < 2 * len(pending)
    assert list(waiters.waiting) == pending
    for _ in range(20):
        end_all(waiters)
        for _ in range(1000):
            waiters.add(Looked())
        assert len(waiters.waiting) <= 2 * len(pending)
    end_all(waiters)
    waiters.notify()
    for _ in range(1000):
        brief = Looked()
        brief.is_over = True
        waiters.add(brief)
    assert len(waiters.waiting) <= 64


class Compared(Looked):
    """Counts how often it is compared with another one."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)


def test_each_of_thousands_that_leave_is_found_without_a_search() -> None:
    Compared.comparisons = 0
    waiters = Waiters()
    pending = [Compared() for _ in range(2000)]
    for each in pending:
        waiters.add(each)
    for each in reversed(pending):
        waiters.drop(each)
    assert waiters.waiting == {}
    assert Compared.comparisons < len(pending)
    waiters.drop(pending[0])  # it waits no longer
