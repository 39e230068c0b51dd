"""Lets long work pause, so that the event loop does other work in between.

A loop over many elements calls `await pause()` between two of them. The call waits only when the slice of this turn of the event loop is
used up. All work of a turn shares one slice of SLICE_NS. Only the requests that one connection has received at once have a slice of their
own (`begin_slice`): the time for requests in a turn is bounded where they are read. Paused work resumes in order, one coroutine in each
turn, with a slice of its own. Any state may have changed when `pause` returns after a wait, so a caller checks the epochs that it depends
on again.

`begin` runs a coroutine without a task until it waits for the first time. Most work ends before that, and then costs no task.

Without a running event loop, as in a thread, `pause` never waits.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import AbstractEventLoop, Future
from asyncio import _get_running_loop as running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Iterable, Iterator
from contextvars import Context
from heapq import merge
from itertools import islice
from threading import get_ident
from types import CoroutineType
from typing import Any, Final, TypeVar, cast, final

_T = TypeVar("_T")
_Made = TypeVar("_Made")
_Key = TypeVar("_Key", bound=Hashable)
_Sortable = TypeVar("_Sortable", str, int)

SLICE_NS: Final = 1_500_000
"""The time of long work in a turn of the event loop, ns. A turn costs 1 % of it. The last step may end half a millisecond late."""
SORTED_AT_ONCE: Final = 1000
"""Items that are sorted between two pauses, a fifth of a millisecond."""


class Paused(Future[None]):
    """The future that a paused coroutine awaits."""


@final
class _Ready:
    """An awaitable that never waits."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return _NOTHING


_NOTHING: Final = cast("Generator[Any, Any, None]", iter(()))
_READY: Final = _Ready()


@final
class Slices:
    """The paused work of one event loop, and the slice of its current turn."""

    __slots__ = ("_clock_ns", "_context", "_is_armed", "_is_begun", "_paused", "_slice_ns", "_until_ns", "loop", "tasks")

    def __init__(self, loop: AbstractEventLoop, clock_ns: Callable[[], int], slice_ns: int) -> None:
        self.loop = loop
        self._clock_ns = clock_ns
        self._slice_ns = slice_ns
        self._until_ns = 0
        self._is_begun = False
        """Whether `_until_ns` is the end of a slice of the current turn."""
        self._is_armed = False
        self._paused: deque[Paused] = deque()
        self.tasks: set[asyncio.Task[None]] = set()
        """The tasks of `begin`. The event loop itself keeps only weak references to tasks."""
        self._context = Context()
        """The context of the turns: that of the coroutine that paused first would also be that of all others."""

    def is_in_slice(self) -> bool:
        """Whether the event loop runs, and the slice of its current turn has begun and lasts."""
        return self._is_begun and self._clock_ns() < self._until_ns and self.loop.is_running()

    def restart(self) -> None:
        """Gives the work that begins now a slice of its own, which the first look at the time begins."""
        self._is_begun = False

    def has_ended(self) -> bool:
        """Whether long work has used up its time in this turn."""
        now_ns = self._clock_ns()
        if not self._is_begun:
            self._is_begun = True
            self._until_ns = now_ns + self._slice_ns
            self._arm()
        return now_ns >= self._until_ns

    async def wait(self) -> None:
        """Waits for a slice in a later turn."""
        paused = Paused(loop=self.loop)
        self._paused.append(paused)
        self._arm()
        await paused
        self._is_begun = True
        self._until_ns = self._clock_ns() + self._slice_ns
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self.loop.call_soon(self._turn, context=self._context)

    def _turn(self) -> None:
        """Ends the slice of the last turn, and resumes the next coroutine."""
        self._is_armed = self._is_begun = False
        while self._paused:
            paused = self._paused.popleft()
            if not paused.done():
                paused.set_result(None)
                self._arm()
                break


_slices: dict[AbstractEventLoop | None, Slices] = {}
"""By event loop. An event loop that was closed is forgotten when the next one begins."""
_latest: dict[int, Slices] = {}
"""By thread, those that its event loop has used last. It costs a system call to ask for the running loop."""


def begin_slices(loop: AbstractEventLoop, clock_ns: Callable[[], int] = time.monotonic_ns, slice_ns: int = SLICE_NS) -> Slices:
    """Gives an event loop its clock, and another length of its slices."""
    for each in list(_slices):
        if each is not None and each.is_closed():
            _slices.pop(each, None)
    for thread, used in list(_latest.items()):
        if used.loop is loop or not used.loop.is_running():
            _latest.pop(thread, None)
    slices = _slices[loop] = Slices(loop, clock_ns, slice_ns)
    return slices


def _slices_here() -> Slices | None:
    """The slices of the running event loop."""
    loop = running_loop()
    slices = _slices.get(loop)
    if slices is None:
        if loop is None:
            return None
        slices = begin_slices(loop)
    _latest[get_ident()] = slices
    return slices


def begin_slice() -> None:
    """Gives the requests of a connection that are handled from now on a slice of their own, whatever other work of this turn has used."""
    latest = _latest.get(get_ident())
    if latest is not None:
        latest.restart()


def is_over() -> bool:
    """Whether long work has used up its time in this turn, so that `pause` would wait. False without a running event loop."""
    latest = _latest.get(get_ident())
    if latest is not None and latest.is_in_slice():
        return False
    slices = _slices_here()
    return slices is not None and slices.has_ended()


def pause() -> Awaitable[None]:
    """Waits for a later turn of the event loop if long work has used up its time in this one."""
    return _slices[running_loop()].wait() if is_over() else _READY


class Rest:
    """Awaits the rest of a coroutine that waits already."""

    __slots__ = ("coroutine", "waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: object) -> None:
        self.coroutine = coroutine
        self.waits_for = waits_for

    def advance(self, step: Callable[[Any], object], value: object) -> object:
        """Continues the coroutine by its `send` or `throw`. Returns what it waits for."""
        return step(value)

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self.waits_for
        while True:
            step: Callable[[Any], object] = self.coroutine.send
            try:
                value = yield waits_for
            except GeneratorExit:
                self.coroutine.close()
                raise
            except BaseException as error:
                step, value = self.coroutine.throw, error
            try:
                waits_for = self.advance(step, value)
            except StopIteration as end:
                return end.value


def begin(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine until it waits; a task continues it. An error before the first wait is raised here."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return
    slices = _slices_here()
    assert slices is not None, "the coroutine waits without an event loop"
    task = asyncio.get_running_loop().create_task(_await(Rest(coroutine, waits_for)))
    slices.tasks.add(task)
    task.add_done_callback(slices.tasks.discard)


async def _await(rest: Rest) -> None:
    await rest


async def in_slices(steps: Generator[None, None, _T]) -> _T:
    """The result of a generator that yields where it may pause."""
    # No function within this one: in compiled code it would refer to itself and to the result, until the collector finds them.
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        if is_over():
            await pause()


async def each(items: Iterable[_T], make: Callable[[_T], _Made]) -> list[_Made]:
    """`[make(item) for item in items]` with pauses."""
    made = []
    for item in items:
        made.append(make(item))
        await pause()
    return made


async def how_often(items: Iterable[_Key]) -> dict[_Key, int]:
    """The number of occurrences of each item."""
    times: dict[_Key, int] = {}
    for item in items:
        times[item] = times.get(item, 0) + 1
        await pause()
    return times


async def move(source: list[_T], target: list[_T]) -> None:
    """Appends the items of a list to another one, and empties it."""
    source.reverse()
    while source:
        target.append(source.pop())
        await pause()


async def discard(items: list[Any] | dict[Any, Any]) -> None:
    """Empties a collection that is no longer needed. Freeing half a million objects at once would hold the loop for 30 ms."""
    take: Callable[[], object] = items.pop if isinstance(items, list) else items.popitem
    while items:
        take()
        await pause()


async def in_order(items: Iterable[_Sortable]) -> Iterator[_Sortable]:
    """The items in order. Parts of them are sorted with pauses, and merged while the result is read."""
    parts = []
    left = iter(items)
    while some := list(islice(left, SORTED_AT_ONCE)):
        some.sort()
        parts.append(some)
        await pause()
    return merge(*parts)


async def _a_coroutine() -> None:
    """Shows the type of coroutines of this module, which may be compiled."""


def _coroutine_types() -> frozenset[type]:
    coroutine = _a_coroutine()
    coroutine.close()
    return frozenset({CoroutineType, type(coroutine)})


COROUTINES: Final = _coroutine_types()
"""The types of coroutines: that of Python, and that of compiled modules."""
