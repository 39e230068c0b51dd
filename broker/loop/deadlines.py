"""Queues operations of a purgatory that have the same timeout: first in, first due. One timer of the wheel serves all of them.

Nearly all requests of a kind have the same timeout, and nearly all complete long before it. So an operation costs an entry at the end of a
queue and its removal from the front (0.7 µs), where its own timer would cost 3 µs. Operations that complete behind a waiting one are
removed when they are the larger part of a long queue.
"""

from __future__ import annotations

import logging
from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Final

from ottla.broker.loop.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from ottla.broker.loop.purgatory import DelayedOperation

logger = logging.getLogger(__name__)

SWEPT_FROM: Final = 1000
"""Length from which on completed operations are removed from a queue."""


class Deadlines:
    """The queue of one timeout."""

    __slots__ = ("_clock", "_is_armed", "_queue", "_sweep_at", "_timeout_ms", "_wheel")

    def __init__(self, wheel: TimingWheel, timeout_ms: float) -> None:
        self._wheel = wheel
        self._clock = wheel.clock
        self._timeout_ms = ceil(timeout_ms)
        self._queue: deque[DelayedOperation] = deque()
        self._sweep_at = SWEPT_FROM
        self._is_armed = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether no operation waits and no timer is set."""
        return not (self._is_armed or self._queue)

    def add(self, operation: DelayedOperation) -> None:
        """Expire an operation in `timeout_ms`, unless it is complete by then."""
        queue = self._queue
        while queue:
            first = queue[0]
            if not first.completed:
                break
            queue.popleft()
        operation.deadline_ms = int(self._clock() * 1000) + self._timeout_ms
        queue.append(operation)
        if not self._is_armed:
            self._is_armed = True
            self._wheel.add(self._timeout_ms, self._on_timer)
        if len(queue) > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        self._queue = deque([each for each in self._queue if not each.completed])
        self._sweep_at = max(SWEPT_FROM, 2 * len(self._queue))

    def _on_timer(self) -> None:
        now_ms = int(self._clock() * 1000)
        # Only those that are due now: operations that are added while one expires have their own time.
        due = []
        queue = self._queue
        while queue and (queue[0].completed or queue[0].deadline_ms <= now_ms):
            due.append(queue.popleft())
        self._is_armed = bool(queue)
        if queue:
            self._wheel.add(queue[0].deadline_ms - now_ms, self._on_timer)
        for operation in due:
            try:
                operation.expire()
            except Exception:
                logger.exception("an operation failed when it expired; the others go on")
