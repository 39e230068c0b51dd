"""The watch over the event loop: lateness and idleness, with the time in the test's hand."""

from typing import Any

from ottla.broker.metrics.loop_watch import BEAT_SECONDS, SECOND, WINDOW_SECONDS, LoopWatch


class ALoop:
    """A loop that keeps one timer; `beat` lets it fire."""

    def __init__(self) -> None:
        self.now = 100.0
        self.worked = 0.0
        self.timer: Any = None
        self.watch = LoopWatch(self, lambda: self.now, lambda: self.worked)  # type: ignore[arg-type]  # all that it needs of a loop

    def call_later(self, delay: float, callback: Any) -> Any:
        self.timer = callback
        return self

    def cancel(self) -> None:
        self.timer = None

    def beat(self, late: float = 0.0, worked: float = 0.0) -> None:
        self.now += BEAT_SECONDS + late
        self.worked += worked
        self.timer()


def test_lateness_is_what_a_timer_fires_too_late() -> None:
    loop = ALoop()
    loop.watch.start()
    loop.beat()
    loop.beat(late=0.02)
    found = loop.watch.lag.look()
    assert found.count == 2
    assert abs(found.total - 20_000) < 5


def test_idle_is_the_time_in_which_the_loop_does_not_work() -> None:
    loop = ALoop()
    assert loop.watch.idle_ratio == 1.0
    loop.watch.start()
    for _ in range(5 * SECOND):
        loop.beat(worked=BEAT_SECONDS / 4)
    assert abs(loop.watch.idle_ratio - 0.75) < 1e-6
    assert abs(loop.watch.busy_seconds - 1.25) < 1e-6


def test_idleness_is_that_of_the_last_minute() -> None:
    loop = ALoop()
    loop.watch.start()
    for _ in range(WINDOW_SECONDS * SECOND):
        loop.beat(worked=BEAT_SECONDS)
    assert loop.watch.idle_ratio < 1e-6
    for _ in range(2 * WINDOW_SECONDS * SECOND):
        loop.beat()
    assert loop.watch.idle_ratio == 1.0


def test_others_are_told_of_seconds_and_windows() -> None:
    loop = ALoop()
    told: list[str] = []
    loop.watch.on_second.append(lambda: told.append("second"))
    loop.watch.on_window.append(lambda: told.append("window"))
    loop.watch.start()
    for _ in range(WINDOW_SECONDS * SECOND):
        loop.beat()
    assert told.count("second") == WINDOW_SECONDS
    assert told.count("window") == 1


def test_after_the_close_nothing_beats() -> None:
    loop = ALoop()
    loop.watch.start()
    loop.watch.close()
    assert loop.timer is None


def test_an_error_of_a_callback_does_not_end_the_beats() -> None:
    def fail() -> None:
        raise ValueError("a fault")

    loop = ALoop()
    loop.watch.on_second.append(fail)
    loop.watch.start()
    failures = 0
    for _ in range(2 * SECOND):
        try:
            loop.beat()
        except ValueError:
            failures += 1
    assert (failures, loop.watch.lag.look().count) == (2, 2 * SECOND)
