"""The timing wheel fires every task once, not before its time, and not (much) after; a cancelled one never."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.waiting.timing_wheel import LONGEST_MS, TimerTask, TimingWheel
from tests.support.timers import FakeTime


def a_wheel() -> tuple[FakeTime, TimingWheel]:
    time = FakeTime()
    return time, TimingWheel(time.clock, time.call_later)


def test_a_task_fires_once_and_not_before_its_time() -> None:
    time, wheel = a_wheel()
    fired: list[float] = []
    wheel.add(50, lambda: fired.append(time.now))
    time.advance(49)
    assert fired == []
    time.advance(3)
    assert len(fired) == 1
    assert 1000.050 <= fired[0] <= 1000.052
    time.advance(10_000)
    assert len(fired) == 1
    assert wheel.count == 0


def test_a_delay_of_nothing_fires_in_the_next_tick_and_never_inside_the_call() -> None:
    time, wheel = a_wheel()
    fired: list[int] = []
    wheel.add(0, lambda: fired.append(1))
    wheel.add(-5, lambda: fired.append(2))
    assert fired == []
    time.advance(3)
    assert sorted(fired) == [1, 2]


def test_a_delay_of_any_length_holds_up_no_other_task() -> None:
    time, wheel = a_wheel()
    fired: list[int] = []
    for delay_ms in (2**63 - 1, 5 * 10**18, LONGEST_MS):
        wheel.add(delay_ms, lambda: fired.append(0))
    wheel.add(10**9, lambda: fired.append(1))
    time.advance(10**9 + 3)
    assert fired == [1]
    assert wheel.count == 3


def test_a_cancelled_task_never_fires_and_lets_go_of_its_callback_at_once() -> None:
    time, wheel = a_wheel()
    fired: list[int] = []
    task = wheel.add(5, lambda: fired.append(1))
    assert task.pending
    task.cancel()
    task.cancel()
    assert not task.pending
    assert task.callback is None
    assert wheel.count == 0
    time.advance(100)
    assert fired == []


def test_a_postponed_task_fires_at_its_new_time_and_no_task_gets_an_earlier_one() -> None:
    time, wheel = a_wheel()
    fired: list[float] = []
    task = wheel.add(1_000, lambda: fired.append(time.now))
    time.advance(900)
    assert not task.postpone(50)
    assert task.postpone(1_000)
    time.advance(990)
    assert fired == []
    time.advance(20)
    assert len(fired) == 1
    assert not task.postpone(1_000)
    assert wheel.count == 0


def test_tasks_of_one_moment_may_cancel_each_other() -> None:
    time, wheel = a_wheel()
    fired: list[int] = []
    tasks: list[TimerTask] = []
    tasks.append(wheel.add(5, lambda: (fired.append(1), tasks[1].cancel())))
    tasks.append(wheel.add(5, lambda: fired.append(2)))
    time.advance(10)
    assert fired == [1]
    assert wheel.count == 0


def test_a_task_may_add_another_while_it_fires() -> None:
    time, wheel = a_wheel()
    fired: list[float] = []

    def again() -> None:
        fired.append(time.now)
        if len(fired) < 5:
            wheel.add(30, again)

    wheel.add(30, again)
    time.advance(400)
    assert len(fired) == 5
    assert all(later - earlier >= 0.029 for earlier, later in pairwise(fired))


def test_a_task_that_raises_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    time, wheel = a_wheel()
    fired: list[int] = []
    wheel.add(5, lambda: 1 // 0)
    wheel.add(5, lambda: fired.append(1))
    time.advance(10)
    assert fired == [1]
    assert len(caplog.records) == 1


def test_tasks_that_come_and_go_cost_no_timers_of_the_loop() -> None:
    time, wheel = a_wheel()
    for _ in range(1000):
        wheel.add(500, lambda: None).cancel()
        time.advance(1)
    assert time.armed < 50


def test_a_loop_that_comes_late_fires_everything_in_order() -> None:
    time, wheel = a_wheel()
    fired: list[int] = []
    for delay in (900, 5, 70, 20_000, 400):
        wheel.add(delay, lambda delay=delay: fired.append(delay))
    time.now += 1.0  # the loop was held up
    time.advance(0)
    assert fired == [5, 70, 400, 900]
    time.advance(20_000)
    assert fired[-1] == 20_000


def test_a_closed_wheel_fires_nothing() -> None:
    time, wheel = a_wheel()
    fired: list[int] = []
    wheel.add(5, lambda: fired.append(1))
    wheel.close()
    wheel.add(5, lambda: fired.append(2))
    time.advance(100)
    assert fired == []


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.one_of(st.integers(0, 50), st.integers(0, 9_000), st.integers(0, 400_000_000))),
            st.tuples(st.just("cancel"), st.integers(0, 1000)),
            st.tuples(st.just("postpone"), st.integers(0, 1000)),
            st.tuples(st.just("advance"), st.one_of(st.integers(0, 30), st.integers(0, 10_000), st.integers(0, 50_000_000))),
            st.tuples(st.just("stall"), st.integers(0, 2_000)),
        ),
        max_size=60,
    )
)
def test_every_task_fires_once_within_two_ticks_of_its_deadline_unless_cancelled(steps: list[tuple[str, int]]) -> None:
    time, wheel = a_wheel()
    fired: dict[int, float] = {}
    tasks: list[tuple[TimerTask, float]] = []
    cancelled: set[int] = set()
    stalled_until = 0.0
    for kind, value in steps:
        if kind == "add":
            number = len(tasks)
            tasks.append((wheel.add(value, lambda number=number: fired.__setitem__(number, time.now)), time.now + value / 1000))
        elif kind == "cancel" and tasks:
            number = value % len(tasks)
            if number not in fired:
                cancelled.add(number)
            tasks[number][0].cancel()
        elif kind == "postpone" and tasks:
            task, deadline = tasks[value % len(tasks)]
            if task.postpone(value):
                tasks[value % len(tasks)] = task, max(deadline, time.now + value / 1000)
        elif kind == "advance":
            time.advance(value)
        elif kind == "stall":
            time.now += value / 1000
            stalled_until = time.now
    assert wheel.count == len(tasks) - len(fired) - len(cancelled)
    time.advance(500_000_000)
    assert set(fired) == set(range(len(tasks))) - cancelled
    for number, at in fired.items():
        deadline = tasks[number][1]
        assert deadline - 0.001 <= at <= max(deadline, stalled_until) + 0.003
    assert wheel.count == 0
