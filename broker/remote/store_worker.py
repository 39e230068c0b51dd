"""Runs the remote store of a broker in a process of its own: `python -P -m ottla.broker.remote.store_worker DESCRIPTOR PARENT`.

Threads that fetch, verify, write and copy hold the interpreter, and the event loop of the broker would wait for it. `store_child` starts
the process and talks to it (`store_messages`) by a socket, whose DESCRIPTOR it gets. The process ends with the socket, and with the broker,
whose process id is PARENT: a broker that was killed may be back soon. It has a lower priority (`nice`) than the broker.

Signals that end a broker are often sent to all of its processes. They are ignored here, because the broker still needs the store then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

from ottla.broker.remote.store_messages import CALLS, Answer, LogLine, MessageReader, Op, Request, encoded, failure_of, hello
from ottla.broker.remote.store_threads import StoreThreads
from ottla.config.remote_store import StoreSettings
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.chunk_checks import Checked, ChunkCheck, write_chunk
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import RemoteStore, RemoteStoreError, StoredObject

NICE: Final = 5
THREADS: Final = 10
"""Threads that verify, write and transform chunks; as many as a broker has for its other work by default."""
PAGE_OBJECTS: Final = 200
"""Objects in an answer to a listing: the event loop of the broker decodes more of them for too long."""
LEAVE_SECONDS: Final = 5.0
"""How long such a call waits for requests that were stopped."""
_AFTER_OTHERS: Final = ("copy", "delete")
"""A copy that was stopped must not go on beside the next attempt, or behind the deletion."""
_PR_SET_PDEATHSIG: Final = 1


class StoreWorker(asyncio.Protocol):
    """Answers the requests of one broker. `ended` is set when the connection is gone."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._reader = MessageReader(hello())
        self._transport: asyncio.WriteTransport | None = None
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla-store")
        self._store_threads = StoreThreads()
        self._filesystem = RealFileSystem()
        self._store: RemoteStore | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """The requests that are not answered, by their numbers."""
        self._leaving: set[asyncio.Task[None]] = set()
        """Requests that were stopped, and have not ended."""
        self._held: dict[int, bytes | memoryview] = {}
        self._listings: dict[int, AsyncIterator[StoredObject]] = {}
        self._actions: dict[Op, Callable[..., Awaitable[Any]]] = {
            Op.OPEN: self._open,
            Op.PREPARE: self._prepare,
            Op.CALL: self._call,
            Op.LIST: self._list,
            Op.NEXT: self._next_page,
            Op.HOLD: self._hold,
            Op.WRITE: self._write,
            Op.READ: self._read,
            Op.CLOSE: self._close,
        }

    # -- the connection --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport = made = cast(asyncio.WriteTransport, transport)
        made.write(hello())

    def data_received(self, data: bytes) -> None:
        """See Protocol."""
        try:
            requests = self._reader.feed(data)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)  # the last words, which the broker reads
            assert self._transport is not None
            self._transport.abort()
            return
        for request in requests:
            self._begin(request)

    def connection_lost(self, exc: Exception | None) -> None:
        """See Protocol."""
        self._transport = None
        self._executor.shutdown(wait=False)
        self._store_threads.close()
        self.ended.set()

    def send(self, message: Answer | LogLine) -> None:
        """Sends a message, if there is still a broker."""
        if self._transport is not None:
            self._transport.write(encoded(message))

    # -- requests --------------------------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        if request.op is Op.PING:
            self.send(Answer(request.number, None))
        elif request.op is Op.FORGET:
            self._forget(*request.arguments)
        else:
            self._tasks[request.number] = self._loop.create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        number = request.number
        try:
            value = await self._actions[request.op](number, *request.arguments)
            self.send(Answer(number, value))
        except BaseException as error:  # also a panic of obstore's, for which the caller would wait forever
            if number in self._tasks:  # otherwise it was stopped, and no caller waits
                self.send(Answer(number, None, failure_of(error)))
        finally:
            self._tasks.pop(number, None)

    def _forget(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is not None:
            task.cancel()
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        self._held.pop(number, None)
        self._listings.pop(number, None)

    async def _open(self, _: int, settings: StoreSettings, secret: bytes) -> None:
        self._store = await self._in_thread(partial(self._opened, settings, secret))

    def _opened(self, settings: StoreSettings, secret: bytes) -> RemoteStore:
        if settings.directory is not None:
            return DirectoryStore(self._filesystem, settings.directory, self._store_threads)
        from ottla.broker.remote.object_store import ObjectStore  # obstore is an extra
        from ottla.broker.remote.objects import open_objects

        return ObjectStore(open_objects(settings), settings, self._filesystem, self._in_thread, secret)

    @property
    def _opened_store(self) -> RemoteStore:
        if self._store is None:
            raise RemoteStoreError("the store was not opened")
        return self._store

    async def _prepare(self, _: int) -> None:
        store = self._opened_store
        if isinstance(store, DirectoryStore):
            await self._store_threads(store.prepare)

    async def _call(self, _: int, name: str, *arguments: Any) -> Any:
        if name not in CALLS:
            raise RemoteStoreError(f"a store has no method {name}")
        if name in _AFTER_OTHERS and self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVE_SECONDS)
        found = await getattr(self._opened_store, name)(*arguments)
        return bytes(found) if isinstance(found, memoryview) else found

    async def _list(self, number: int, prefix: str) -> tuple[list[StoredObject], bool]:
        self._listings[number] = self._opened_store.list(prefix)
        return await self._next_page(number, number)

    async def _next_page(self, _: int, number: int) -> tuple[list[StoredObject], bool]:
        listing = self._listings.get(number)
        if listing is None:
            raise RemoteStoreError("the listing was not begun")
        page: list[StoredObject] = []
        try:
            while len(page) < PAGE_OBJECTS:
                page.append(await anext(listing))
        except StopAsyncIteration:
            del self._listings[number]
            return page, True
        return page, False

    async def _hold(self, number: int, entry: SegmentEntry, start: int, end: int) -> None:
        data = await self._opened_store.fetch(entry, start, end)
        if number in self._tasks:  # otherwise it was forgotten meanwhile
            self._held[number] = data

    async def _write(self, _: int, number: int, check: ChunkCheck, path: str) -> Checked:
        checked: Checked = await self._in_thread(partial(write_chunk, self._filesystem, path, self._held_bytes(number), check))
        return checked

    async def _read(self, _: int, number: int) -> bytes:
        return bytes(self._held_bytes(number))

    def _held_bytes(self, number: int) -> bytes | memoryview:
        data = self._held.get(number)
        if data is None:
            raise RemoteStoreError("the chunk is not held any more")
        return data

    async def _close(self, _: int) -> None:
        if self._store is not None:
            await self._store.close()

    def _in_thread(self, work: Callable[[], Any]) -> Awaitable[Any]:
        return self._loop.run_in_executor(self._executor, work)


class _LinesToBroker(logging.Handler):
    """Sends log lines to the broker, from any thread."""

    def __init__(self, worker: StoreWorker) -> None:
        super().__init__(logging.INFO)
        self._loop = asyncio.get_running_loop()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        with suppress(Exception):  # a line that cannot be sent must not harm what it is about
            line = LogLine(record.name, record.levelno, self.format(record))
            self._loop.call_soon_threadsafe(self._worker.send, line)


@contextmanager
def _logging_to(worker: StoreWorker) -> Iterator[None]:
    root = logging.getLogger()
    handler, level = _LinesToBroker(worker), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


async def serve(connection: socket.socket) -> None:
    """Serves one broker until the connection ends."""
    connection.setblocking(False)
    _, worker = await asyncio.get_running_loop().create_unix_connection(StoreWorker, sock=connection)
    with _logging_to(worker):
        await worker.ended.wait()


def follow_parent(parent: int) -> bool:
    """Has the kernel kill this process at the end of its parent. Returns False if that has ended already."""
    with suppress(Exception):  # where there is no ctypes: the socket ends, too
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    return os.getppid() == parent


def main() -> None:
    """Serves; see the module."""
    descriptor, parent = (int(each) for each in sys.argv[1:])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not follow_parent(parent):
        return
    with suppress(OSError):
        os.nice(NICE)
    asyncio.run(serve(socket.socket(fileno=descriptor)))
    os._exit(0)  # a thread may hang in a call to a directory


if __name__ == "__main__":
    main()
