"""Runs remote stores in processes of their own, as brokers do, and looks at those processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import uvloop

from ottla.broker.remote.store_process import StoreProcess
from ottla.config.remote_store import StoreSettings
from ottla.storage.remote.ports import RemoteStore, StoredObject

_Result = TypeVar("_Result")

SECONDS = 60.0


def a_store_process(settings: StoreSettings) -> StoreProcess:
    """A store with a budget of its own. The test closes it."""
    return StoreProcess(settings)


def run_on_uvloop(story: Coroutine[Any, Any, _Result]) -> _Result:
    """Runs a story on a loop like that of a broker."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story)


def is_alive(pid: int) -> bool:
    """Tells if this store process has not ended. One that is only not reaped has no command line."""
    try:
        return b"store_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


class _OnOneLoop:
    """A store whose calls are passed on to the loop that it lives on."""

    def __init__(self, store: StoreProcess, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self.chunk_bytes = store.chunk_bytes

    async def _run(self, call: Coroutine[Any, Any, _Result]) -> _Result:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return lambda *arguments: self._run(getattr(self._store, name)(*arguments))

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """See RemoteStore."""

        async def all_of_it() -> Any:
            return [each async for each in self._store.list(prefix)]

        for each in await self._run(all_of_it()):
            yield each


@contextmanager
def a_store_process_for_any_loop(settings: StoreSettings) -> Iterator[RemoteStore]:
    """A store that may be called on several loops, one after the other. It is closed at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    store = a_store_process(settings)
    try:
        yield cast("RemoteStore", _OnOneLoop(store, loop))
    finally:
        asyncio.run_coroutine_threadsafe(store.close(), loop).result(SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()
