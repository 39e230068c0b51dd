"""Runs long work in slices, one slice in each turn of the event loop, so that other requests are served in between.

Long work is a generator (`Steps`). It yields wherever other work may run, and returns its result. Between two steps shared state may
change, so a generator keeps its own copies of the state that it depends on. A handler in steps must not keep references to parts of its
request or response: when the request is answered, `free_in_steps` empties the arrays of both. All work in steps runs here, one slice of
SLICE_NS in each turn of the loop.

A large request (LARGE_BYTES) waits before it is even decoded, and only one large request is processed here at a time; the smallest goes
first. This bounds the memory of decoded requests, where an element of one byte may take a hundred. Two kinds of large requests let the next
one begin. The first kind merely waits for an event. The second kind is continued by a task, which waits for the metadata store or for a
thread. At a time there may be one request of the second kind of any size, and others of HANDED_ON_BYTES together. A request that is known
to need a task begins only when this limit has room for it, so it never keeps others waiting.

Small requests begin at once. If their first slice was not enough, they continue here, and take turns with each other and with the large
request. The event loop owns this state; nothing here is thread safe.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from heapq import heappop, heappush, merge
from itertools import islice
from types import GeneratorType
from typing import Final, TypeAlias, TypeVar

from ottla.broker.network.request_channel import CLOSE, Pending
from ottla.protocol.schema.fields import ArrayOf, Fixed
from ottla.protocol.schema.message import Struct

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Made = TypeVar("_Made")
_Key = TypeVar("_Key", bound=Hashable)
_Sortable = TypeVar("_Sortable", str, int)

Steps: TypeAlias = Generator[None, None, _T]
_Work: TypeAlias = Steps[asyncio.Task[None] | None]


def _no_steps() -> Steps[None]:
    yield


GENERATORS: Final = frozenset({GeneratorType, type(_no_steps())})
"""The types of `Steps`: the generator of Python, and that of compiled modules."""

LARGE_BYTES: Final = 16 * 1024
"""Smallest request that is read and answered in steps, bytes; the elements of smaller ones can be read within some milliseconds."""
HANDED_ON_BYTES: Final = 1024 * 1024
"""Most bytes of the large requests together that tasks continue, besides the largest one: some 500,000 elements."""
SORTED_PER_STEP: Final = 1000
"""Items that are sorted in a step, a fifth of a millisecond."""
SLICE_NS: Final = 2_000_000
"""Length of a slice, ns; a turn of the loop costs 1 % of it."""


class Unfinished:
    """The result of `Turns.first_slice` when the slice was not enough."""


UNFINISHED: Final = Unfinished()


def each(items: Iterable[_T], make: Callable[[_T], _Made]) -> Steps[list[_Made]]:
    """`[make(item) for item in items]` in steps."""
    made = []
    for item in items:
        made.append(make(item))
        yield
    return made


def how_often(items: Iterable[_Key]) -> Steps[dict[_Key, int]]:
    """The number of occurrences of each item, in steps."""
    times: dict[_Key, int] = {}
    for item in items:
        times[item] = times.get(item, 0) + 1
        yield
    return times


def in_order(items: Iterable[_Sortable]) -> Steps[Iterator[_Sortable]]:
    """The items in order. Parts of them are sorted in steps; the iterator merges the parts, and so takes time for those that are needed."""
    parts = []
    left = iter(items)
    while some := list(islice(left, SORTED_PER_STEP)):
        some.sort()
        parts.append(some)
        yield
    return merge(*parts)


def free_in_steps(message: Struct) -> Steps[None]:
    """Empties the arrays of a message that is no longer needed. Freeing a large message at once would hold the loop for long."""
    for field in message.SCHEMA.fields:
        if isinstance(field.type, ArrayOf) and not isinstance(field.type.element, Fixed):
            items = getattr(message, field.name)
            while items:
                item = items.pop()
                if isinstance(item, Struct):
                    yield from free_in_steps(item)
                yield


class _Large:
    """A large request in progress."""

    __slots__ = ("is_handed_on", "pending", "rest", "size")

    def __init__(self, pending: Pending, size: int, rest: AbstractContextManager[None]) -> None:
        """`rest` is the context that is entered while the request is in progress."""
        self.pending = pending
        self.size = size
        self.rest = rest
        self.is_handed_on = False
        """Whether a task continues it."""


class Turns:
    """See the module. `work` completes its `pending` itself. If `work` returns a task, the request is in progress until the task ends."""

    __slots__ = (
        "_armed",
        "_begun",
        "_call_soon",
        "_clock_ns",
        "_count",
        "_handed_on",
        "_pause_ns",
        "_place",
        "_postponed",
        "_slice_ns",
        "_waiting",
        "_while_large",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock_ns: Callable[[], int] = time.monotonic_ns,
        slice_ns: int = SLICE_NS,
        while_large: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """The context `while_large` is entered while a large request is in progress."""
        self._call_soon = call_soon
        self._clock_ns = clock_ns
        self._slice_ns = slice_ns
        self._begun: deque[tuple[_Work, Pending]] = deque()
        self._waiting: list[tuple[int, int, _Work, Pending, bool]] = []
        """A heap of large requests: size, number, work, answer, and whether it needs a task. The work of a client that left is closed, and
        ends when it begins."""
        self._postponed: list[tuple[int, int, _Work, Pending, bool]] = []
        """Those that wait for room among the requests that tasks continue."""
        self._place: _Large | None = None
        self._handed_on: dict[Pending, _Large] = {}
        """The large requests that tasks continue, without the one that still has the place."""
        self._while_large = while_large
        self._count = 0
        self._pause_ns = 0
        self._armed = False

    def first_slice(self, steps: Steps[_T]) -> _T | Unfinished:
        """Work for one slice; the result, or UNFINISHED."""
        until_ns = self._clock_ns() + self._slice_ns
        try:
            while True:
                next(steps)
                if self._clock_ns() >= until_ns:
                    return UNFINISHED
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returned

    def go_on(self, work: _Work, pending: Pending) -> None:
        """Continue `work` in later turns."""
        self._begun.append((work, pending))
        self._arm()

    def wait(self, work: _Work, pending: Pending, *, needs_task: bool = False) -> None:
        """Begin a large request when its turn comes; never if its client leaves before. `needs_task`: a task will continue it."""
        self._count += 1
        heappush(self._waiting, (pending.waiting_bytes, self._count, work, pending, needs_task))

        def withdraw() -> None:
            work.close()
            pending.end_waiting()

        pending.on_closed = withdraw
        self._arm()

    def leave(self, pending: Pending) -> None:
        """A request is done, or merely waits for an event from now on: another large one may begin."""
        place = self._place
        if place is not None and place.pending is pending:
            self._place = None
            large: _Large | None = place
        else:
            large = self._handed_on.pop(pending, None)
        if large is None:
            return
        large.rest.__exit__(None, None, None)
        self._give_place_up()
        for postponed in self._postponed:
            heappush(self._waiting, postponed)
        self._postponed.clear()
        self._arm()

    def _give_place_up(self) -> None:
        """Let another large request begin if a task continues this one, and those of other tasks leave room in memory."""
        place = self._place
        if place is None or not place.is_handed_on:
            return
        if self._has_room(place.size):
            self._handed_on[place.pending] = place
            self._place = None

    def _has_room(self, size: int) -> bool:
        """Whether a task may continue one more request, of `size` bytes."""
        sizes = [size, *(each.size for each in self._handed_on.values())]
        return sum(sizes) - max(sizes) <= HANDED_ON_BYTES

    def _begin_next(self) -> None:
        """Begin the smallest large request that may."""
        while self._waiting:
            waiting = heappop(self._waiting)
            size, _, work, pending, needs_task = waiting
            if needs_task and not self._has_room(size):
                self._postponed.append(waiting)
                continue
            pending.end_waiting()
            pending.on_closed = None
            self._place = _Large(pending, size, self._while_large())
            self._place.rest.__enter__()
            self._begun.append((work, pending))
            return

    async def spread(self, steps: Steps[_T]) -> _T:
        """The result of `steps`, for a coroutine; other work runs between the slices."""
        while True:
            result = self.first_slice(steps)
            if not isinstance(result, Unfinished):
                return result
            await asyncio.sleep(0)

    async def pause(self) -> None:
        """Let other work run if a slice has passed since the last pause; for coroutines that would not otherwise wait."""
        if self._clock_ns() >= self._pause_ns:
            await asyncio.sleep(0)
            self._pause_ns = self._clock_ns() + self._slice_ns

    def _arm(self) -> None:
        if not self._armed and (self._begun or (self._waiting and self._place is None)):
            self._armed = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._armed = False
        if self._place is None:
            self._begin_next()
        if self._begun:
            work, pending = self._begun.popleft()
            connection = pending.connection
            if connection is not None:
                connection.begin_work()
            try:
                result = self.first_slice(work)
            except Exception:
                logger.exception("unexpected error in a request; closing its connection")
                pending.complete(CLOSE)
                result = None
            if connection is not None:
                connection.end_work()
            if isinstance(result, Unfinished):
                self._begun.append((work, pending))
            elif result is None:
                self.leave(pending)
            else:
                result.add_done_callback(lambda _: self.leave(pending))
                if self._place is not None and self._place.pending is pending:
                    self._place.is_handed_on = True
                    self._give_place_up()
        self._arm()

    def close(self) -> None:
        """Drop all work that is left."""
        for _, _, work, _, _ in (*self._waiting, *self._postponed):
            work.close()
        for work, _ in self._begun:
            work.close()
        self._waiting.clear()
        self._postponed.clear()
        self._begun.clear()
        for pending in [*self._handed_on] + ([] if self._place is None else [self._place.pending]):
            self.leave(pending)
