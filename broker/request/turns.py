"""Long work in the event loop, a little of it in every turn, so that whoever else asks is served in between.

Work that may be long is a generator (`Steps`): it yields wherever others may have their turn, as often as it likes, and returns its result.
It holds whatever it relies on itself: between two steps the world may change. A handler in steps keeps nothing of a request, nor anything
of its response: what was large is taken to pieces when it is answered. Everything that is made in steps runs here, one slice of
SLICE_NS in each turn of the loop.

A request that is large itself (LARGE_BYTES) waits for its place before it is even decoded, the smallest first, and there is only one place:
that bounds what decoded requests hold, since an element of one byte may take a hundred. Who merely waits for an event gives the place up.
Requests that are small begin where they come and go on here if that was not enough; those take turns among themselves and with the large
one. Nothing here is thread safe: the loop owns it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from heapq import heappop, heappush
from typing import Final, TypeAlias, TypeVar

from broker.network.request_channel import CLOSE, Pending
from protocol.schema.fields import ArrayOf, Fixed
from protocol.schema.message import Struct

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Made = TypeVar("_Made")
_Key = TypeVar("_Key", bound=Hashable)

Steps: TypeAlias = Generator[None, None, _T]

LARGE_BYTES: Final = 16 * 1024
"""A request of this size is read and answered in steps. Smaller ones have no more elements than can be read in some milliseconds."""
SLICE_NS: Final = 2_000_000
"""How long a turn works on what is in steps: a turn itself costs 1 % of that."""


class Unfinished:
    """What `Turns.first_slice` returns when time was up."""


UNFINISHED: Final = Unfinished()


def each(items: Iterable[_T], make: Callable[[_T], _Made]) -> Steps[list[_Made]]:
    """`[make(item) for item in items]` in steps."""
    made = []
    for item in items:
        made.append(make(item))
        yield
    return made


def how_often(items: Iterable[_Key]) -> Steps[dict[_Key, int]]:
    """How often each comes, in steps."""
    times: dict[_Key, int] = {}
    for item in items:
        times[item] = times.get(item, 0) + 1
        yield
    return times


def let_go(message: Struct) -> Steps[None]:
    """Empties the arrays of a message that nobody needs any more: to free all of a large one at once takes long."""
    for field in message.SCHEMA.fields:
        if isinstance(field.type, ArrayOf) and not isinstance(field.type.element, Fixed):
            items = getattr(message, field.name)
            while items:
                item = items.pop()
                if isinstance(item, Struct):
                    yield from let_go(item)
                yield


class Turns:
    """See the module. `work` completes its `pending` itself; it returns a task when it goes on as one, and keeps its place meanwhile."""

    __slots__ = (
        "_armed",
        "_begun",
        "_call_soon",
        "_clock_ns",
        "_count",
        "_held",
        "_pause_ns",
        "_place",
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
        """`while_large` is entered for as long as a large request has its place."""
        self._call_soon = call_soon
        self._clock_ns = clock_ns
        self._slice_ns = slice_ns
        self._begun: deque[tuple[Steps[asyncio.Task[None] | None], Pending]] = deque()
        self._waiting: list[tuple[int, int, Steps[asyncio.Task[None] | None], Pending]] = []
        """A heap: size, number, work, and the answer it will have. That of a client that left is closed, and over as soon as it begins."""
        self._place: Pending | None = None
        self._while_large = while_large
        self._held: AbstractContextManager[None] = nullcontext()
        self._count = 0
        self._pause_ns = 0
        self._armed = False

    def first_slice(self, steps: Steps[_T]) -> _T | Unfinished:
        """Work until it is done or time is up."""
        until_ns = self._clock_ns() + self._slice_ns
        try:
            while True:
                next(steps)
                if self._clock_ns() >= until_ns:
                    return UNFINISHED
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returned

    def go_on(self, work: Steps[asyncio.Task[None] | None], pending: Pending) -> None:
        """Work on what has begun in later turns."""
        self._begun.append((work, pending))
        self._arm()

    def wait(self, work: Steps[asyncio.Task[None] | None], pending: Pending) -> None:
        """Work on a large request when it is its turn; never if its client leaves before."""
        self._count += 1
        heappush(self._waiting, (pending.waiting_bytes, self._count, work, pending))

        def withdraw() -> None:
            work.close()
            pending.end_waiting()

        pending.on_closed = withdraw
        self._arm()

    def leave(self, pending: Pending) -> None:
        """The request is done, or merely waits from now on: another large one may begin."""
        if self._place is pending:
            self._place = None
            self._held.__exit__(None, None, None)
            self._arm()

    async def spread(self, steps: Steps[_T]) -> _T:
        """The result of `steps`, taken by a coroutine: others have their turns meanwhile."""
        while True:
            result = self.first_slice(steps)
            if not isinstance(result, Unfinished):
                return result
            await asyncio.sleep(0)

    async def pause(self) -> None:
        """Between two steps of coroutines that do not wait for anything: if they had their time, others have their turn."""
        if self._clock_ns() >= self._pause_ns:
            await asyncio.sleep(0)
            self._pause_ns = self._clock_ns() + self._slice_ns

    def _arm(self) -> None:
        if not self._armed and (self._begun or (self._waiting and self._place is None)):
            self._armed = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._armed = False
        if self._place is None and self._waiting:
            *_, work, pending = heappop(self._waiting)
            pending.end_waiting()
            pending.on_closed = None
            self._place = pending
            self._held = self._while_large()
            self._held.__enter__()
            self._begun.append((work, pending))
        if self._begun:
            work, pending = self._begun.popleft()
            try:
                result = self.first_slice(work)
            except Exception:
                logger.exception("a request failed in an unforeseen way; closing its connection")
                pending.complete(CLOSE)
                result = None
            if isinstance(result, Unfinished):
                self._begun.append((work, pending))
            elif result is None:
                self.leave(pending)
            else:
                result.add_done_callback(lambda _: self.leave(pending))
        self._arm()

    def close(self) -> None:
        """Give up what is left."""
        for *_, work, _ in self._waiting:
            work.close()
        for work, _ in self._begun:
            work.close()
        self._waiting.clear()
        self._begun.clear()
        if self._place is not None:
            self.leave(self._place)
