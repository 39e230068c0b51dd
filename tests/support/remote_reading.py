"""Builds a log whose closed segments are in a remote store, and what reads them from there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from ottla.storage.disk.filesystem import FileSystem, RealFileSystem
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers.snapshot import encode_snapshot
from ottla.storage.remote.chunk_cache import ChunkCache
from ottla.storage.remote.chunk_loads import ChunkLoads
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState
from ottla.storage.remote.held_chunks import ChunkSource, LocalChunk, LocalChunks
from ottla.storage.remote.index_cache import IndexCache
from ottla.storage.remote.memory_budget import MemoryBudget
from ottla.storage.remote.ports import MAX_INDEX_BYTES, IndexKind, RemoteStore, SegmentFiles
from ottla.storage.remote.segment_reader import NotHere, SegmentReader
from ottla.storage.segment.cold_lookups import NotCached
from ottla.storage.segment.segment import Segment
from tests.support.remote_stores import PARTITION, at_once

_Result = TypeVar("_Result")

MOST_ROUNDS = 10_000


class Counts:
    """Reads from the store."""

    def __init__(self) -> None:
        self.remote_fetch_requests = self.remote_fetch_bytes = self.remote_fetch_errors = 0


class NoQuota:
    """Lets everything pass, and counts it."""

    def __init__(self) -> None:
        self.reserved = 0
        self.delays: list[float] = []
        """Answers of the next reservations; without any, all is allowed."""

    def reserve(self, size: int) -> float:
        """Takes the bytes, or delays them."""
        if self.delays and (delay := self.delays.pop(0)):
            return delay
        self.reserved += size
        return 0

    def give_back(self, size: int) -> None:
        """Returns bytes."""
        self.reserved -= size


class ScriptedStore:
    """Passes everything to another store, and counts, delays or fails it as a test wants."""

    def __init__(self, inner: RemoteStore) -> None:
        self.inner = inner
        self.fetches: list[tuple[int, int, int]] = []
        """(start offset of the segment, start, end) of each read of records."""
        self.indexes: list[tuple[int, IndexKind]] = []
        self.errors: list[Exception] = []
        """Raised by the next reads, in this order."""
        self.change: Callable[[bytes], bytes] = lambda data: data
        """Changes what is read."""
        self.gate: asyncio.Event | None = None
        """Reads of records wait for it."""

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes:
        """See RemoteStore."""
        self.fetches.append((entry.start_offset, start, end))
        if self.gate is not None:
            await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return self.change(await self.inner.fetch(entry, start, end))

    async def index(self, entry: SegmentEntry, kind: IndexKind, most: int = MAX_INDEX_BYTES) -> bytes:
        """See RemoteStore."""
        self.indexes.append((entry.start_offset, kind))
        if self.errors:
            raise self.errors.pop(0)
        return await self.inner.index(entry, kind, most)

    async def save_indexes(self, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
        """See RemoteStore."""
        self.indexes += [(entry.start_offset, kind) for kind in paths]
        if self.errors:
            raise self.errors.pop(0)
        await self.inner.save_indexes(entry, paths)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class Reading(NamedTuple):
    """A reader of remote segments, and all that it is made of."""

    reader: SegmentReader
    store: ScriptedStore
    indexes: IndexCache
    chunks: ChunkCache
    loads: ChunkLoads
    budget: MemoryBudget
    quota: NoQuota
    counts: Counts
    now_ms: list[int]


def a_reading(
    store: RemoteStore,
    directory: Path | str,
    *,
    filesystem: FileSystem | None = None,
    chunk_bytes: int = 1000,
    limit: int = 1 << 30,
    index_limit: int = 1 << 30,
    memory: int = 64 << 20,
    most_running: int = 10,
    most_waiting: int = 100,
    source: ChunkSource | None = None,
) -> Reading:
    """A reader with caches in this directory, which does the work of threads in the test's. `source` has the chunks of the store."""
    filesystem = filesystem or RealFileSystem()
    scripted = ScriptedStore(store)
    budget, quota, counts, now_ms = MemoryBudget(memory), NoQuota(), Counts(), [0]
    indexes = IndexCache(filesystem, str(directory), index_limit, scripted, budget, at_once)  # type: ignore[arg-type]  # passes the rest on
    chunks = ChunkCache(filesystem, str(directory), limit, chunk_bytes, budget, at_once, lambda: now_ms[0])
    indexes.prepare()
    chunks.prepare()
    loads = ChunkLoads(
        source or LocalChunks(scripted, filesystem, at_once),  # type: ignore[arg-type]  # passes the rest on
        chunks,
        budget,
        quota,
        lambda _: counts,
        most_running=most_running,
        most_waiting=most_waiting,
    )
    reader = SegmentReader(filesystem, indexes, chunks, loads)
    return Reading(reader, scripted, indexes, chunks, loads, budget, quota, counts, now_ms)


def a_held_chunk(data: bytes, filesystem: FileSystem | None = None) -> LocalChunk:
    """A chunk that was fetched."""
    return LocalChunk(data, filesystem or RealFileSystem(), at_once)


async def copy_closed_segments(log: PartitionLog, store: RemoteStore, partition: int = 0) -> list[SegmentEntry]:
    """Copies all segments but the active one, and returns their entries, which are finished."""
    entries = []
    log.rolls.finish()
    segments = list(log.segments)
    for segment, following in pairwise(segments):
        segment.write_out_indexes()
        segment.write_out_transactions()
        entry = SegmentEntry(
            SegmentId(PARTITION._replace(partition=partition), (partition << 32 | segment.base_offset).to_bytes(16, "big")),
            segment.base_offset,
            following.base_offset - 1,
            broker_id=1,
            max_timestamp_ms=segment.max_timestamp.timestamp,
            event_timestamp_ms=0,
            leader_epochs={0: segment.base_offset},
            size=segment.size,
            state=SegmentState.COPY_SEGMENT_FINISHED,
        )
        await store.copy(entry, files_of(segment, following.base_offset, log.context.filesystem))
        entries.append(entry)
    return entries


def files_of(segment: Segment, end_offset: int, filesystem: FileSystem) -> SegmentFiles:
    """The files of a closed segment."""
    path, offset_index, time_index, transactions = segment.paths
    snapshot = f"{path[: path.rindex('/')]}/{end_offset:020d}.snapshot"
    return SegmentFiles(
        path,
        offset_index,
        time_index,
        transactions if filesystem.exists(transactions) else None,
        filesystem.read_file(snapshot) if filesystem.exists(snapshot) else encode_snapshot([]),
        b"0\n1\n0 0\n",
    )


async def when_here(ask: Callable[..., _Result], *arguments: object) -> _Result:
    """The result of `ask` for the arguments, when all that it needs is on this broker."""
    for _ in range(MOST_ROUNDS):
        try:
            return ask(*arguments)
        except NotHere as missing:
            await missing.load("reader")
        except NotCached as cold:
            cold.warm()
    raise AssertionError("it never gets there")


async def quiet() -> None:
    """Returns when all has been done that can be done without waiting."""
    for _ in range(100):
        await asyncio.sleep(0)


def run(story: Callable[[], Awaitable[_Result]]) -> _Result:
    """Runs a story on a loop of its own."""

    async def told() -> _Result:
        return await story()

    return asyncio.run(told())
