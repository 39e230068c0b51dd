"""Runs calls to a store in a directory in threads of their own, so that other work of the broker does not wait for a directory that hangs.

A call to a machine that is gone may never return. Its thread is lost then. Neither a stop of the broker nor the end of the process waits
for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

MOST_THREADS: Final = 16
"""Threads at most. While all of them hang, further calls wait until their time is over."""

_Result = TypeVar("_Result")


class StoreThreads:
    """A `Threads` of at most MOST_THREADS threads, which begin as they are needed. Calls that are given up in time are never made."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        """Guards everything below."""
        self._waiting: dict[asyncio.Future[Any], Callable[[], Any]] = {}
        self._count = self._idle = 0
        self._is_closed = False

    def __call__(self, work: Callable[[], _Result]) -> Awaitable[_Result]:
        """See Threads."""
        future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        future.add_done_callback(self._forget)
        with self._changed:
            self._waiting[future] = work
            is_new = len(self._waiting) > self._idle and self._count < MOST_THREADS
            self._count += is_new
            self._changed.notify()
        if is_new:
            threading.Thread(target=self._run, name=f"ottla-store-{self._count}", daemon=True).start()
        return future

    def close(self) -> None:
        """Ends the threads that do not hang, behind the calls that wait."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _forget(self, future: asyncio.Future[Any]) -> None:
        """Forgets a call whose caller has left. While the directory hangs, more and more of them would be kept."""
        with self._changed:
            self._waiting.pop(future, None)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            future, work = call
            result, error = None, None
            if not future.done():
                try:
                    result = work()
                except Exception as raised:
                    error = raised
            with suppress(RuntimeError):  # the loop was closed meanwhile
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            del call, work, future, result, error

    def _next(self) -> tuple[asyncio.Future[Any], Callable[[], Any]] | None:
        """Waits for a call; None at the end."""
        with self._changed:
            self._idle += 1
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            self._idle -= 1
            for future, work in self._waiting.items():
                del self._waiting[future]
                return future, work
            return None


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
