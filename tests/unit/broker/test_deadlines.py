"""Operations that wait equally long share a timer, and each is expired at its own time."""

import logging

import pytest

from ottla.replication.ports.waiters import Waiters
from ottla.replication.waiting.purgatory import MAX_TIMEOUTS, SWEPT_FROM, Deadlines, DelayedOperation, Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from tests.support.timers import FakeTime

TIMEOUT_MS = 500


class Wait(DelayedOperation):
    """Notes when its time was up."""

    def __init__(self, time: FakeTime, *, fails: bool = False) -> None:
        super().__init__()
        self.expired_at = 0.0
        self._time = time
        self._fails = fails

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        pass

    def on_expiration(self) -> None:
        self.expired_at = self._time.now
        if self._fails:
            raise RuntimeError("a fault")


def a_queue() -> tuple[FakeTime, Deadlines]:
    time = FakeTime()
    return time, Deadlines(TimingWheel(time.clock, time.call_later), TIMEOUT_MS)


def test_each_is_expired_at_its_own_time_and_not_before() -> None:
    time, deadlines = a_queue()
    added = []
    for _ in range(20):
        added.append((time.now, operation := Wait(time)))
        deadlines.add(operation)
        time.advance(37)
    time.advance(2 * TIMEOUT_MS)
    for added_at, operation in added:
        assert TIMEOUT_MS - 1 <= (operation.expired_at - added_at) * 1000 <= TIMEOUT_MS + 3
    assert deadlines.is_idle


def test_what_completes_leaves_with_the_next_that_comes() -> None:
    time, deadlines = a_queue()
    for _ in range(100):
        operation = Wait(time)
        deadlines.add(operation)
        operation.force_complete()
    assert len(deadlines) == 1
    assert time.armed == 1
    time.advance(2 * TIMEOUT_MS)
    assert deadlines.is_idle


def test_one_that_waits_on_does_not_keep_all_behind_it() -> None:
    time, deadlines = a_queue()
    first = Wait(time)
    deadlines.add(first)
    longest = 0
    for _ in range(5 * SWEPT_FROM):
        operation = Wait(time)
        deadlines.add(operation)
        operation.force_complete()
        longest = max(longest, len(deadlines))
    assert longest <= SWEPT_FROM + 1
    time.advance(2 * TIMEOUT_MS)
    assert first.expired_at > 0


def test_one_whose_end_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    time, deadlines = a_queue()
    first, second, third = Wait(time), Wait(time, fails=True), Wait(time)
    for operation in (first, second, third):
        deadlines.add(operation)
    with caplog.at_level(logging.ERROR):
        time.advance(2 * TIMEOUT_MS)
    assert first.expired_at > 0
    assert third.expired_at > 0
    assert "the others go on" in caplog.text


def test_timeouts_of_which_there_are_too_many_have_timers_of_their_own() -> None:
    time = FakeTime()
    purgatory = Purgatory("test", TimingWheel(time.clock, time.call_later))
    operations = [Wait(time) for _ in range(3 * MAX_TIMEOUTS)]
    began = time.now
    for number, operation in enumerate(operations):
        purgatory.watch(operation, Waiters(), 100 + 10 * number)
    time.advance(10_000)
    for number, operation in enumerate(operations):
        assert 100 + 10 * number - 1 <= (operation.expired_at - began) * 1000 <= 100 + 10 * number + 50
    late = Wait(time)
    purgatory.watch(late, Waiters(), 7777)
    purgatory.watch(Wait(time), Waiters(), 7777)
    assert late.deadline_ms > 0
    assert (purgatory.delayed, purgatory.expirations) == (2, len(operations))
