"""Runs calls to a store in a directory in threads of their own, so that other work of the broker does not wait for a directory that hangs.

A call to a machine that is gone may never return. Its thread is lost then. Neither a stop of the broker nor the end of the process waits
for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

MOST_THREADS: Final = 16
"""Threads at most. While all of them hang, further calls wait until their time is over."""

_Result = TypeVar("_Result")


class StoreThreads:
    """A `Threads` of at most MOST_THREADS threads, which begin as they are needed."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def __call__(self, work: Callable[[], _Result]) -> Awaitable[_Result]:
        """See Threads."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        self._calls.put((work, loop, future))
        if not self._idle.acquire(blocking=False) and self._count < MOST_THREADS:
            self._count += 1
            threading.Thread(target=self._run, name=f"ottla-store-{self._count}", daemon=True).start()
        return future

    def close(self) -> None:
        """Ends the threads that do not hang."""
        for _ in range(self._count):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            work, loop, future = call
            result, error = None, None
            if not future.cancelled():
                try:
                    result = work()
                except Exception as raised:
                    error = raised
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_settle, future, result, error)
            del call, work, future, result, error
            self._idle.release()


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
