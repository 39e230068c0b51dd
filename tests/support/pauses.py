"""Runs coroutines that pause, from pause to pause, on an event loop or without one."""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Generic, TypeVar, cast

from ottla.pauses import Paused, begin_slices

_T = TypeVar("_T")


def without_pauses() -> None:
    """Gives the running event loop a slice that never ends, for a test of work that is short enough for one."""
    begin_slices(asyncio.get_running_loop(), clock_ns=lambda: 0)


class _NoLoop:
    """As much of an event loop as a pause needs."""

    def call_soon(self, _: object, *, context: Context) -> None:
        """Nothing follows by itself."""

    def get_debug(self) -> bool:
        """See asyncio."""
        return False

    def is_closed(self) -> bool:
        """See asyncio."""
        return True

    def is_running(self) -> bool:
        """See asyncio."""
        return False


class HandLoop(_NoLoop):
    """An event loop for long work alone. Its turns are those that a test calls."""

    def __init__(self) -> None:
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...], Context | None]] = deque()

    def call_soon(self, callback: Callable[..., object], *arguments: object, context: Context | None = None) -> None:
        """See asyncio."""
        self._soon.append((callback, arguments, context))

    def create_task(self, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """See asyncio."""
        return asyncio.Task(coroutine, loop=cast("asyncio.AbstractEventLoop", self))

    def is_running(self) -> bool:
        """See asyncio."""
        return True

    def turn(self) -> bool:
        """Runs what is due; False if nothing is."""
        count = len(self._soon)
        for _ in range(count):
            callback, arguments, context = self._soon.popleft()
            if context is None:
                callback(*arguments)
            else:
                context.run(callback, *arguments)
        return count > 0


@contextmanager
def turns_by_hand() -> Iterator[HandLoop]:
    """Within it every pause waits for the next turn of the loop, for which the test asks."""
    hand = HandLoop()
    loop = cast("asyncio.AbstractEventLoop", hand)
    slices = begin_slices(loop, slice_ns=0)
    _set_running_loop(loop)
    try:
        yield hand
    finally:
        for task in tuple(slices.tasks):
            task.cancel()
        while hand.turn():
            pass
        _set_running_loop(None)


def every_pause_waits() -> None:
    """From now on a turn of the running event loop has time for one element."""
    begin_slices(asyncio.get_running_loop(), slice_ns=0)


def no_pause_waits() -> None:
    """From now on a turn of the running event loop has time for everything."""
    begin_slices(asyncio.get_running_loop(), slice_ns=10**12)


class Steps(Generic[_T]):
    """The steps of a coroutine, which waits at every pause and for nothing else."""

    def __init__(self, coroutine: Coroutine[Any, Any, _T]) -> None:
        self._coroutine = coroutine
        self.result: _T | None = None

    def __iter__(self) -> Iterator[None]:
        return self

    def __next__(self) -> None:
        loop = _get_running_loop()
        used = loop or cast("asyncio.AbstractEventLoop", _NoLoop())
        begin_slices(used, slice_ns=0)
        _set_running_loop(used)
        try:
            paused = self._coroutine.send(None)
        except StopIteration as end:
            self.result = end.value
            raise
        finally:
            _set_running_loop(loop)
        assert isinstance(paused, Paused)
        paused.set_result(None)

    def finish(self) -> None:
        """Takes the remaining steps."""
        for _ in self:
            pass


def steps_of(coroutine: Coroutine[Any, Any, _T]) -> tuple[int, _T]:
    """The number of steps of a coroutine, and its result."""
    steps = Steps(coroutine)
    return sum(1 for _ in steps), cast("_T", steps.result)


def at_once(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that waits for nothing but its next turn."""
    while True:
        try:
            paused = coroutine.send(None)
        except StopIteration as end:
            return cast("_T", end.value)
        if paused is not None:
            assert isinstance(paused, Paused)
            paused.set_result(None)


async def a_turn() -> None:
    """Lets a paused coroutine run up to its next pause."""
    await asyncio.sleep(0)
