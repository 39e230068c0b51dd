"""Visits all logs or partitions of a broker, with pauses between them (`ottla/pauses.py`).

Invariant: every item is visited, and the next round begins, whatever a visit raises. Otherwise a fault with one log would end the upkeep of
all logs for as long as the broker runs.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

from ottla.pauses import begin, pause
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.background import Background

log = logging.getLogger(__name__)


class OfPartition(Protocol):
    """A log or a partition, which is visited."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that log lines name."""


_T = TypeVar("_T", bound=OfPartition)
Visit = Callable[[_T], Awaitable[None] | None]
"""Works on one item. Long work returns an awaitable, which pauses. An item may be closed when its visit begins, and after each pause."""


async def visit_all(name: str, items: Iterable[_T], visit: Visit[_T], is_over: Callable[[], bool] = lambda: False) -> None:
    """Visits each item, with a pause after it, until `is_over`. An error is logged, and the other items follow."""
    for each in list(items):
        if is_over():
            return
        try:
            rest = visit(each)
            if rest is not None:
                await rest
        except Exception:
            log.exception("%s: background task %s failed; it goes on with the other partitions", each.topic_partition, name)
        await pause()


class Rounds(Generic[_T]):
    """Runs one round at a time, on the event loop, until the background is closed."""

    __slots__ = ("_background", "_is_running", "_name", "_then", "_visit")

    def __init__(self, background: Background, name: str, visit: Visit[_T], then: Callable[[], None] = lambda: None) -> None:
        """`then` is called at the end of a round. A visit that pauses ends by itself when the background is closed."""
        self._background = background
        self._name = name
        self._visit = visit
        self._then = then
        self._is_running = False

    def begin(self, items: Iterable[_T]) -> None:
        """Begins a round at once; does nothing while the last one is in progress."""
        if not self._is_running:
            begin(self._run(items))

    async def _run(self, items: Iterable[_T]) -> None:
        self._is_running = True
        try:
            await visit_all(self._name, items, self._visit, lambda: self._background.is_closed)
        finally:
            self._is_running = False
        if not self._background.is_closed:
            self._then()
