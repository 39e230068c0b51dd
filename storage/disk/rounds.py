"""Visits all logs of a broker in rounds, a few per turn of the event loop, so that other work runs in between.

Invariant: a round visits every log, and the next one begins, whatever a visit raises. Otherwise a fault with one log would end the upkeep
of all logs for as long as the broker runs.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.background import Background

log = logging.getLogger(__name__)


class OfPartition(Protocol):
    """Something that a round visits."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that log lines name."""


_T = TypeVar("_T", bound=OfPartition)


class Rounds(Generic[_T]):
    """Runs one round at a time."""

    __slots__ = ("_background", "_name", "_per_turn", "_steps", "_then", "_visit", "_visited", "_waiting")

    def __init__(self, background: Background, name: str, visit: Callable[[_T], Iterator[int]], then: Callable[[], None]) -> None:
        """`visit` is a generator: it works in steps and yields the cost of each. `then` is called at the end of a round."""
        self._background = background
        self._name = name
        self._visit = visit
        self._then = then
        self._per_turn = 1
        self._waiting: deque[_T] = deque()
        self._visited: _T | None = None
        self._steps: Iterator[int] = iter(())
        """The steps that remain of the current visit."""

    def begin(self, items: Iterable[_T], per_turn: int) -> None:
        """Begins a round at once; does nothing while the last one is in progress. A turn ends when it has cost `per_turn`. A visit costs 1
        besides its steps."""
        if not self._is_running():
            self._per_turn = per_turn
            self._waiting.extend(items)
            self._turn()

    def _is_running(self) -> bool:
        return self._visited is not None or bool(self._waiting)

    def _turn(self) -> None:
        left = self._per_turn
        while left > 0 and self._is_running():
            visited = self._visited
            if visited is None:
                visited = self._visited = self._waiting.popleft()
                self._steps = self._visit(visited)
                left -= 1
            left -= self._step(visited)
        if self._is_running():
            self._background.schedule(self._name, 0, 0, self._turn)
        else:
            self._then()

    def _step(self, visited: _T) -> int:
        """Continues the visit; returns the cost of the step."""
        try:
            cost = next(self._steps, None)
        except Exception:
            log.exception("%s: background task %s failed; it goes on with the other partitions", visited.topic_partition, self._name)
            cost = None
        if cost is None:
            self._visited = None
            self._steps = iter(())
            return 0
        return cost
