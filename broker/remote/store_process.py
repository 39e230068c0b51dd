"""Provides a remote store that works in a process of its own, so that its threads share no interpreter with the event loop of the broker.

The process is started by the first call, and again by the next one after its end, at most once a second. Calls that wait for a process
that ends fail with RemoteStoreError, which their callers repeat. Chunks stay in the process: it writes them to the files of the cache
itself, and indexes to those of their cache. The process has no limit of memory, since the broker has one for all transfers. The broker
also has the secret of encrypted copies: another process has to repeat a copy with the same keys.

Lives on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final, cast

from ottla.broker.remote.encryption import new_secret
from ottla.broker.remote.index_objects import SAVE_BYTES
from ottla.broker.remote.objects import COPY_BYTES
from ottla.broker.remote.store_child import StoreChild
from ottla.broker.remote.store_messages import LogLine, Op, hello
from ottla.config.errors import ConfigError
from ottla.config.remote_store import StoreSettings
from ottla.storage.remote.chunk_checks import Checked, ChunkCheck
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import MAX_INDEX_BYTES, IndexKind, RemoteStoreError, SegmentFiles, StoredObject

logger = logging.getLogger(__name__)

RESTART_SECONDS: Final = 1.0
"""Time between the starts of two processes at least."""
CLOSE_SECONDS: Final = 5.0
"""Time for the end of all processes."""
MOST_LINES: Final = 20
"""Log lines of processes that are passed on in a minute."""
_MINUTE: Final = 60.0


class SettingsRefused(RemoteStoreError):
    """No store can have these settings: the text is that of the ConfigError."""


class ProcessChunk:
    """A chunk that a store process holds: a HeldChunk. It is lost with that process."""

    __slots__ = ("_child", "_is_dropped", "_number", "size")

    def __init__(self, child: StoreChild, number: int, size: int) -> None:
        """`number` is that of the request that has fetched it."""
        self._child = child
        self._number = number
        self._is_dropped = False
        self.size = size

    async def write(self, check: ChunkCheck, path: str) -> Checked:
        """See HeldChunk."""
        found: Checked = await self._child.ask(Op.WRITE, self._number, check._replace(entry=_plain(check.entry)), path)
        return found

    async def read(self) -> bytes:
        """See HeldChunk."""
        return cast(bytes, await self._child.ask(Op.READ, self._number))

    def drop(self) -> None:
        """See HeldChunk."""
        if not self._is_dropped:
            self._is_dropped = True
            self._child.forget(self._number)


class StoreProcess:
    """A RemoteStore and ChunkSource; see the module."""

    def __init__(self, settings: StoreSettings) -> None:
        """Starts nothing."""
        hello()  # reads the sources now, as long as they are those of this process
        self._settings = settings
        self._secret = new_secret()
        self._numbers = count(1)
        self._child: StoreChild | None = None
        """The newest process."""
        self._children: set[StoreChild] = set()
        """All of which something may be left."""
        self._opening: asyncio.Task[StoreChild] | None = None
        self._next_start = float("-inf")
        self._is_closed = False
        self.was_open = False
        """Whether a process has opened the store."""
        self._lines = _PassedOnLines()
        self._reports: set[asyncio.Task[None]] = set()
        self._said: dict[str, float] = {}
        """The reports of the last minute, and when they were made."""
        self.chunk_bytes = settings.chunk_bytes
        self.copy_bytes = COPY_BYTES if settings.directory is None else DirectoryStore.copy_bytes
        self.save_bytes = SAVE_BYTES if settings.directory is None else DirectoryStore.save_bytes

    @property
    def pid(self) -> int | None:
        """The process id of the newest process, if there is one."""
        return None if self._child is None or self._child.is_over else self._child.pid

    async def prepare(self) -> None:
        """Makes the folder of a store in a directory. Called once, at the start. Raises RemoteStoreError."""
        await (await self._running()).ask(Op.PREPARE)

    # -- RemoteStore -----------------------------------------------------------------------------------------------------

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        """See RemoteStore."""
        return cast("bytes | None", await self._call("copy", _plain(entry), files))

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes:
        """See RemoteStore."""
        return cast(bytes, await self._call("fetch", _plain(entry), start, end))

    async def index(self, entry: SegmentEntry, kind: IndexKind, most: int = MAX_INDEX_BYTES) -> bytes:
        """See RemoteStore."""
        return cast(bytes, await self._call("index", _plain(entry), kind, most))

    async def index_size(self, entry: SegmentEntry, kind: IndexKind) -> int:
        """See RemoteStore."""
        return cast(int, await self._call("index_size", _plain(entry), kind))

    async def save_indexes(self, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
        """See RemoteStore. The process writes the files: their bytes do not come here."""
        await self._call("save_indexes", _plain(entry), dict(paths))

    async def manifest(self, entry: SegmentEntry) -> bytes | None:
        """See RemoteStore."""
        return cast("bytes | None", await self._call("manifest", _plain(entry)))

    async def size(self, entry: SegmentEntry) -> int:
        """See RemoteStore."""
        return cast(int, await self._call("size", _plain(entry)))

    async def delete(self, entry: SegmentEntry) -> None:
        """See RemoteStore."""
        await self._call("delete", _plain(entry))

    async def probe(self) -> None:
        """See RemoteStore."""
        await self._call("probe")

    async def now_ms(self) -> int | None:
        """See RemoteStore."""
        return cast("int | None", await self._call("now_ms"))

    async def owner(self, claim: str | None = None) -> str | None:
        """See RemoteStore."""
        return cast("str | None", await self._call("owner", claim))

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """See RemoteStore. A listing ends with an error if its process does."""
        child = await self._running()
        number = next(self._numbers)
        is_last = False
        try:
            page, is_last = await child.ask(Op.LIST, prefix, number=number)
            while True:
                for each in page:
                    yield each
                if is_last:
                    return
                page, is_last = await child.ask(Op.NEXT, number)
        finally:
            if not is_last:
                child.forget(number)

    async def close(self) -> None:
        """See RemoteStore. Also ends a process that is being started."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLOSE_SECONDS
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,), timeout=CLOSE_SECONDS)
        await asyncio.gather(*(child.close(deadline) for child in self._children if not child.is_reaped))
        for report in self._reports:
            report.cancel()
        await asyncio.gather(*self._reports, return_exceptions=True)

    # -- ChunkSource -----------------------------------------------------------------------------------------------------

    async def hold(self, entry: SegmentEntry, start: int, end: int) -> ProcessChunk:
        """See ChunkSource."""
        child = await self._running()
        number = next(self._numbers)
        await child.ask(Op.HOLD, _plain(entry), start, end, number=number)
        return ProcessChunk(child, number, end - start)

    # -- the process -----------------------------------------------------------------------------------------------------

    async def _call(self, name: str, *arguments: Any) -> Any:
        return await (await self._running()).ask(Op.CALL, name, *arguments)

    async def _running(self) -> StoreChild:
        """Returns a process whose store is open. Raises RemoteStoreError."""
        if self._is_closed:
            raise RemoteStoreError("the remote store was closed")
        if self._child is not None and self._child.is_open:
            return self._child
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.get_running_loop().create_task(self._open(), name="start of a store process")
            opening.add_done_callback(self._on_opened)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():  # by `close`, and not the caller
                raise RemoteStoreError("the remote store was closed") from None
            raise

    async def _open(self) -> StoreChild:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._next_start - loop.time()))
        if self._child is not None and not self._child.is_reaped:
            await self._child.obituary()  # so that two do not work at the same time, unless the kernel keeps the first
        self._next_start = loop.time() + RESTART_SECONDS
        child = self._child = StoreChild(self._numbers, self._lines.take, self._on_lost)
        self._children = {each for each in self._children if not each.is_reaped} | {child}
        try:
            await child.open(self._settings, self._secret)
        except ConfigError as error:
            self._say(f"the store process refuses its settings: {error}")
            raise SettingsRefused(str(error)) from None
        except RemoteStoreError as error:
            self._say(str(error))
            raise
        self.was_open = True
        return child

    def _on_opened(self, opening: asyncio.Task[StoreChild]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # asyncio would log it if all callers had left

    def _on_lost(self, child: StoreChild) -> None:
        report = asyncio.get_running_loop().create_task(self._report(child))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report(self, child: StoreChild) -> None:
        self._say(f"the store process ended: {await child.obituary()}")

    def _say(self, reason: str) -> None:
        """Writes one line, unless it was written a minute ago. The caller of the first start reports its failure itself."""
        now = asyncio.get_running_loop().time()
        if not self.was_open or now - self._said.get(reason, float("-inf")) < _MINUTE:
            return
        self._said = {each: when for each, when in self._said.items() if now - when < _MINUTE} | {reason: now}
        logger.warning("%s; calls to the remote store fail until another one has started, which the next call tries", reason)


class _PassedOnLines:
    """Writes log lines of processes to the log of the broker, MOST_LINES in a minute."""

    def __init__(self) -> None:
        self._begin = float("-inf")
        self._count = 0

    def take(self, line: LogLine) -> None:
        """Writes a line, or leaves it out."""
        now = asyncio.get_running_loop().time()
        if now - self._begin >= _MINUTE:
            if self._count > MOST_LINES:
                logger.warning("%d more lines of the store process were left out", self._count - MOST_LINES)
            self._begin, self._count = now, 0
        self._count += 1
        if self._count <= MOST_LINES:
            logging.getLogger(line.logger).log(line.level, "store process: %s", line.text)


def _plain(entry: SegmentEntry) -> SegmentEntry:
    """Returns the entry with what can be sent."""
    return replace(entry, leader_epochs=dict(entry.leader_epochs))
