"""Provides a remote store and its metadata in memory, for tests of the tasks that use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.remote.entries import Accepts, SegmentEntry, SegmentUpdate, TopicIdPartition, any_copy
from ottla.storage.remote.metadata.packed_entries import HEAD, pack_tail
from ottla.storage.remote.metadata.segment_cache import RecordRefused, SegmentCache
from ottla.storage.remote.ports import (
    MAX_INDEX_BYTES,
    IndexKind,
    MetadataNotReady,
    MetadataWriteFailed,
    RemoteObjectMissing,
    RemoteStoreError,
    SegmentFiles,
    StoredObject,
)
from tests.support.peers import until


class Parts:
    """The parts of one copy."""

    def __init__(self) -> None:
        self.log: bytes | None = None
        self.indexes: dict[IndexKind, bytes] = {}


async def _nothing(call: str, entry: SegmentEntry) -> None:
    pass


class MemoryStore:
    """A RemoteStore. `before` is awaited at each step of a call, and may raise or wait."""

    chunk_bytes = 4 << 20
    copy_bytes = save_bytes = 1 << 20

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self.parts: dict[bytes, Parts] = {}
        self.before: Callable[[str, SegmentEntry], Awaitable[None]] = _nothing
        self.custom: bytes | None = None
        self.calls: list[tuple[str, int]] = []
        self.clock_ms: int | None = None
        self.owner_id: str | None = None
        self.names: dict[str, int] = {}
        """The objects that a listing shows, and when they were written."""

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        """See RemoteStore."""
        self.calls.append(("copy", entry.start_offset))
        await self.before("copy", entry)
        parts = self.parts.setdefault(entry.id.uuid, Parts())
        try:
            parts.indexes = {
                IndexKind.OFFSET: self._filesystem.read_file(files.offset_index),
                IndexKind.TIMESTAMP: self._filesystem.read_file(files.time_index),
                IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
                IndexKind.LEADER_EPOCH: files.leader_epochs,
                IndexKind.TRANSACTION: b"" if files.transaction_index is None else self._filesystem.read_file(files.transaction_index),
            }
            await self.before("copy of the records", entry)
            parts.log = self._filesystem.read_file(files.log)
        except OSError as error:
            raise RemoteStoreError(str(error)) from error
        await self.before("answer to the copy", entry)
        return self.custom

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes:
        """See RemoteStore."""
        await self.before("fetch", entry)
        parts = self.parts.get(entry.id.uuid)
        if parts is None or parts.log is None:
            raise RemoteObjectMissing(f"the records from offset {entry.start_offset}")
        if end > len(parts.log):
            raise RemoteStoreError("too few bytes")
        return parts.log[start:end]

    async def index(self, entry: SegmentEntry, kind: IndexKind, most: int = MAX_INDEX_BYTES) -> bytes:
        """See RemoteStore."""
        await self.before("index", entry)
        parts = self.parts.get(entry.id.uuid)
        if parts is None or kind not in parts.indexes:
            raise RemoteObjectMissing(f"{kind.name} from offset {entry.start_offset}")
        if len(parts.indexes[kind]) > most:
            raise RemoteStoreError(f"{kind.name} has more than {most} bytes")
        return parts.indexes[kind]

    async def index_size(self, entry: SegmentEntry, kind: IndexKind) -> int:
        """See RemoteStore."""
        return len(await self.index(entry, kind))

    async def save_indexes(self, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
        """See RemoteStore."""
        for kind, path in paths.items():
            file = self._filesystem.open(path, create=True)
            file.pwrite(await self.index(entry, kind), 0)
            file.close()

    async def delete(self, entry: SegmentEntry) -> None:
        """See RemoteStore."""
        self.calls.append(("delete", entry.start_offset))
        await self.before("delete", entry)
        self.parts.pop(entry.id.uuid, None)
        await self.before("answer to the deletion", entry)

    async def probe(self) -> None:
        """See RemoteStore."""

    async def now_ms(self) -> int | None:
        """See RemoteStore."""
        return self.clock_ms

    async def owner(self, claim: str | None = None) -> str | None:
        """See RemoteStore."""
        self.owner_id = self.owner_id or claim
        return self.owner_id

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """See RemoteStore."""
        for name, modified_ms in self.names.items():
            if name.startswith(prefix):
                yield StoredObject(name, modified_ms)

    async def close(self) -> None:
        """See RemoteStore."""


Record = SegmentEntry | SegmentUpdate


async def _written(record: Record) -> None:
    pass


class MemoryMetadata:
    """A RemoteLogMetadata whose records are applied at once. `before` is awaited before a record is applied, `after` behind it; both may
    raise MetadataWriteFailed. Several brokers may share the `caches`, as they share the topic."""

    def __init__(self, caches: dict[TopicIdPartition, SegmentCache] | None = None) -> None:
        self.caches = {} if caches is None else caches
        self.followed: set[TopicIdPartition] = set()
        self.records: list[Record] = []
        self.before: Callable[[Record], Awaitable[None]] = _written
        self.after: Callable[[Record], Awaitable[None]] = _written
        self.ready = True
        self.questions = 0
        self.refused = 0
        """Number of questions while it was not ready."""

    def follow(self, partition: TopicIdPartition) -> None:
        """See RemoteLogMetadata."""
        self.followed.add(partition)

    def unfollow(self, partition: TopicIdPartition) -> None:
        """See RemoteLogMetadata."""
        self.followed.discard(partition)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """See RemoteLogMetadata."""
        return self.ready and partition in self.followed

    async def when_ready(self, partition: TopicIdPartition) -> None:
        """See RemoteLogMetadata."""
        if partition not in self.followed:
            raise MetadataNotReady
        await until(lambda: self.ready)

    async def add(self, entry: SegmentEntry) -> None:
        """See RemoteLogMetadata."""
        await self.before(entry)
        epochs = sorted(entry.leader_epochs.items())
        packed = HEAD.pack(
            entry.start_offset,
            entry.end_offset,
            entry.max_timestamp_ms,
            entry.event_timestamp_ms,
            entry.broker_id,
            entry.size,
            entry.state,
            epochs[0][0],
        ) + pack_tail(entry.start_offset, epochs, entry.custom)
        self._apply(entry, lambda cache: cache.add(int.from_bytes(entry.id.uuid, "big"), packed))
        await self.after(entry)

    async def update(self, update: SegmentUpdate) -> None:
        """See RemoteLogMetadata."""
        await self.before(update)
        key = int.from_bytes(update.id.uuid, "big")
        self._apply(update, lambda cache: cache.change(key, update.state, update.broker_id, update.event_timestamp_ms, update.custom))
        await self.after(update)

    def _apply(self, record: Record, change: Callable[[SegmentCache], None]) -> None:
        self.records.append(record)
        try:
            change(self._cache(record.id.partition))
        except RecordRefused as refused:
            raise MetadataWriteFailed(str(refused)) from refused

    def find(self, partition: TopicIdPartition, epoch: int, offset: int, accepts: Accepts = any_copy) -> SegmentEntry | None:
        """See RemoteLogMetadata."""
        return self._readable(partition).find(epoch, offset, accepts)

    def get(self, partition: TopicIdPartition, uuid: bytes) -> SegmentEntry | None:
        """See RemoteLogMetadata."""
        return self._readable(partition).get(uuid)

    def marked(self, partition: TopicIdPartition) -> SegmentEntry | None:
        """See RemoteLogMetadata."""
        return self._readable(partition).marked()

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """See RemoteLogMetadata."""
        return self._readable(partition).highest_offset(epoch)

    def epochs(self, partition: TopicIdPartition) -> Sequence[int]:
        """See RemoteLogMetadata."""
        return list(self._readable(partition).epochs)

    def entries(self, partition: TopicIdPartition, epoch: int) -> Sequence[SegmentEntry]:
        """See RemoteLogMetadata."""
        return self._readable(partition).entries(epoch)

    def unfinished(self, partition: TopicIdPartition, epoch: int) -> Sequence[SegmentEntry]:
        """See RemoteLogMetadata."""
        return self._readable(partition).unfinished(epoch)

    def all_entries(self, partition: TopicIdPartition) -> Sequence[SegmentEntry]:
        """See RemoteLogMetadata."""
        return self._readable(partition).all_entries()

    def _readable(self, partition: TopicIdPartition) -> SegmentCache:
        self.questions += 1
        if not self.is_ready(partition):
            self.refused += 1
            raise MetadataNotReady
        return self._cache(partition)

    def _cache(self, partition: TopicIdPartition) -> SegmentCache:
        cache = self.caches.get(partition)
        if cache is None:
            cache = self.caches[partition] = SegmentCache(partition)
        return cache


class SlowBackground:
    """A Background whose work is done at once."""

    is_closed = False

    def schedule(self, name: str, delay_ms: int, period_ms: int, callback: Callable[[], None]) -> None:
        """See Background."""
        asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    def schedule_once(self, name: str, action: Callable[[], None], delay_ms: int) -> None:
        """See Background."""
        asyncio.get_running_loop().call_later(delay_ms / 1000, action)

    def submit(self, name: str, work: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        """See Background."""
        error: BaseException | None = None
        try:
            work()
        except Exception as found:
            error = found
        asyncio.get_running_loop().call_soon(then, error)
