"""Kafka's hierarchical timing wheel: many timers, most of which are cancelled, on one timer of the event loop.

The lowest wheel has `wheel_size` buckets of `tick_ms`; each wheel above has buckets as long as the whole wheel below. Adding and cancelling
are O(1): a task goes into the bucket of the lowest wheel that reaches its deadline. When a bucket is due, its tasks are fired or move down
to a finer one. A heap of the buckets that hold something tells when to look next; a cancelled task leaves its bucket to be found empty.

The purgatories and coordinators of the broker use it. Clock and `call_later` are arguments: a test or the simulator turns the time itself.

Invariant: no bucket due before `_now_ms` holds a task; so the bucket of a deadline is a function of `_now_ms` alone, and no two rounds of a
wheel share a bucket.
"""

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil
from typing import Final, Protocol

logger = logging.getLogger(__name__)


class Cancellable(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> object:
        """Do not call."""


class TimerTask:
    """A callback and its deadline; `cancel` may be called at any time, also after it fired."""

    __slots__ = ("_bucket", "_wheel", "callback", "deadline_ms")

    def __init__(self, wheel: "TimingWheel", callback: Callable[[], object], deadline_ms: int) -> None:
        self._wheel = wheel
        self._bucket: dict[TimerTask, None] | None = None
        self.callback: Callable[[], object] | None = callback
        self.deadline_ms = deadline_ms

    @property
    def pending(self) -> bool:
        """Whether it will still fire."""
        return self.callback is not None

    def cancel(self) -> None:
        """Do not fire."""
        if self.callback is not None:
            # The reference goes at once: what the callback holds must not live until the bucket is due.
            self.callback = None
            self._wheel.on_task_gone()
            if self._bucket is not None:
                del self._bucket[self]
                self._bucket = None

    def move_to(self, bucket: "dict[TimerTask, None] | None") -> None:
        """For the wheel: which bucket holds it; None while it is about to fire."""
        self._bucket = bucket
        if bucket is not None:
            bucket[self] = None

    def fire(self) -> None:
        """For the wheel: call back, unless it was cancelled."""
        callback = self.callback
        if callback is None:
            return
        self.callback = None
        self._wheel.on_task_gone()
        try:
            callback()
        except Exception:
            logger.exception("a timer failed; the others go on")


class _Level:
    """One wheel. `due_ms[i]` is when bucket i is due, or -1 while it is not in the heap."""

    __slots__ = ("buckets", "due_ms", "interval_ms", "tick_ms")

    def __init__(self, tick_ms: int, size: int) -> None:
        self.tick_ms = tick_ms
        self.interval_ms = tick_ms * size
        self.buckets: list[dict[TimerTask, None]] = [{} for _ in range(size)]
        self.due_ms = [-1] * size


class TimingWheel:
    """See the module. `clock` gives monotonic seconds."""

    __slots__ = ("_armed", "_armed_ms", "_call_later", "_closed", "_heap", "_levels", "_now_ms", "_size", "clock", "count")

    def __init__(
        self,
        clock: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], Cancellable],
        tick_ms: int = 1,
        wheel_size: int = 20,
    ) -> None:
        self.clock = clock
        self._call_later = call_later
        self._size: Final = wheel_size
        self._levels = [_Level(tick_ms, wheel_size)]
        # (due, level, index of the bucket): plain tuples compare fast and never tie on something that cannot be compared.
        self._heap: list[tuple[int, int, int]] = []
        self._now_ms = int(clock() * 1000)
        self._armed: Cancellable | None = None
        self._armed_ms = 0
        self._closed = False
        self.count = 0

    def add(self, delay_ms: float, callback: Callable[[], object]) -> TimerTask:
        """Call back once, `delay_ms` from now; never before the call returns."""
        now_ms = int(self.clock() * 1000)
        heap = self._heap
        if not heap or heap[0][0] > now_ms:
            self._now_ms = now_ms
        # Not in the current tick, which would be due already.
        task = TimerTask(self, callback, max(now_ms + ceil(delay_ms), self._now_ms + self._levels[0].tick_ms))
        self.count += 1
        self._place(task)
        self._arm()
        return task

    def on_task_gone(self) -> None:
        """For tasks: one fired or was cancelled."""
        self.count -= 1

    def advance(self) -> None:
        """Fire what is due. The loop timer calls it; a simulation may too."""
        now_ms = int(self.clock() * 1000)
        heap = self._heap
        due: list[TimerTask] = []
        while heap and heap[0][0] <= now_ms:
            due_ms, number, index = heappop(heap)
            level = self._levels[number]
            level.due_ms[index] = -1
            tasks = level.buckets[index]
            if not tasks:
                continue
            # A dict of its own for the bucket: tasks may come back into it for the next round.
            level.buckets[index] = {}
            self._now_ms = due_ms
            for task in tasks:
                if task.deadline_ms <= now_ms:
                    task.move_to(None)
                    due.append(task)
                else:
                    self._place(task)
        self._now_ms = now_ms
        due.sort(key=_deadline)
        for task in due:
            task.fire()

    def close(self) -> None:
        """Fires nothing any more."""
        self._closed = True
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _place(self, task: TimerTask) -> None:
        deadline_ms = task.deadline_ms
        now_ms = self._now_ms
        levels = self._levels
        number = 0
        while True:
            level = levels[number]
            tick_ms = level.tick_ms
            if deadline_ms < now_ms - now_ms % tick_ms + level.interval_ms:
                break
            number += 1
            if number == len(levels):
                levels.append(_Level(level.interval_ms, self._size))
        tick = deadline_ms // tick_ms
        index = tick % self._size
        task.move_to(level.buckets[index])
        if level.due_ms[index] < 0:
            level.due_ms[index] = tick * tick_ms
            heappush(self._heap, (tick * tick_ms, number, index))

    def _arm(self) -> None:
        if not self._heap or self._closed:
            return
        due_ms = self._heap[0][0]
        if self._armed is not None:
            if self._armed_ms <= due_ms:
                return
            self._armed.cancel()
        self._armed_ms = due_ms
        # Half a tick late, so that a loop that rounds its timers down does not come too early and once more.
        self._armed = self._call_later(max(0.0, (due_ms + 0.5) / 1000 - self.clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._armed = None
        if not self._closed:
            self.advance()
            self._arm()


def _deadline(task: TimerTask) -> int:
    return task.deadline_ms
