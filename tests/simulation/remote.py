"""Simulates the store of remote segments: objects that all brokers share, behind a network that delays, loses and cuts.

A request takes effect in nobody's name, so it may do so although its broker has died or has given it up. `RemoteObjects` checks each
request against what must never happen to a remote segment (docs/long-tests.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.entries import SegmentEntry, SegmentState, TopicIdPartition
from ottla.storage.remote.ports import (
    MAX_INDEX_BYTES,
    IndexKind,
    RemoteLogMetadata,
    RemoteObjectMissing,
    RemoteStoreError,
    SegmentFiles,
    StoredObject,
)
from tests.simulation.committed import Committed
from tests.simulation.loop import Life
from tests.simulation.network import SimulatedNetwork

STORE = "store"
CALL_S = 1.5
"""How long a broker waits for an answer."""
LOG, INDEXES, MANIFEST = "log", "indexes", "manifest"
PARTS = (LOG, INDEXES, MANIFEST)
"""The objects of a copy, in the order in which they are written."""

_Result = TypeVar("_Result")


@dataclass(slots=True)
class Trouble:
    """How likely a request fails, how likely its answer is lost though it had its effect, and how likely it is late."""

    fails: float = 0.0
    is_lost: float = 0.0
    is_late: float = 0.0


class RemoteObjects:
    """The objects of all copies. `may_arrive` is asked about each request that arrives, `on_done` told of each that had its effect.

    `metadata_of` gives what a broker knows of remote segments, and `log_of` its log of a partition.
    """

    def __init__(self, network: SimulatedNetwork, random: Random) -> None:
        self.network = network
        self.random = random
        self.parts: dict[bytes, dict[str, object]] = {}
        self.trouble = Trouble()
        self.committed: Mapping[TopicPartition, Committed] = {}
        self.metadata_of: Callable[[int], RemoteLogMetadata | None] = lambda broker_id: None
        self.log_of: Callable[[int, TopicPartition], PartitionLog | None] = lambda broker_id, partition: None
        self.may_arrive: Callable[[Life, str], bool] = lambda life, request: True
        self.on_done: Callable[[Life, str], None] = lambda life, request: None
        self.requests: Counter[str] = Counter()

    def has_all(self, entry: SegmentEntry) -> bool:
        """Tells if the copy is complete, and has the records that were committed."""
        parts = self.parts.get(entry.id.uuid, {})
        return parts.keys() == set(PARTS) and self._is_committed(entry, parts[LOG])

    def put(self, entry: SegmentEntry, part: str, content: object) -> None:
        """Writes an object. Its content never changes, and none is written but final records."""
        if part == LOG:
            assert self._is_committed(entry, content), f"{_told(entry)}: other records are copied than were committed"
        known = self.parts.setdefault(entry.id.uuid, {}).setdefault(part, content)
        assert known == content, f"{_told(entry)}: the object {part} is overwritten with another content"

    def get(self, entry: SegmentEntry, part: str) -> object:
        """Reads an object."""
        try:
            return self.parts[entry.id.uuid][part]
        except KeyError:
            raise RemoteObjectMissing(f"{_told(entry)}: {part}") from None

    def remove(self, entry: SegmentEntry, part: str) -> None:
        """Removes an object, if it is there."""
        parts = self.parts.get(entry.id.uuid, {})
        parts.pop(part, None)
        if not parts:
            self.parts.pop(entry.id.uuid, None)

    def check_removal(self, broker_id: int, entry: SegmentEntry) -> None:
        """The broker may remove the copy: the metadata say so already, and no reader needs its records."""
        metadata = self.metadata_of(broker_id)
        assert metadata is not None
        partition = entry.id.partition
        known = metadata.get(partition, entry.id.uuid)
        assert known is not None, f"{_told(entry)} is removed, and not known"
        assert known.state is SegmentState.DELETE_SEGMENT_STARTED, f"{_told(entry)} is removed in the state {known.state.name}"
        log = self.log_of(broker_id, TopicPartition(partition.topic, partition.partition))
        if log is not None:
            first = max(entry.start_offset, log.log_start_offset)
            self.check_readable(metadata, entry, log, first, min(entry.end_offset + 1, log.local_log_start_offset))

    def check_readable(self, metadata: RemoteLogMetadata, entry: SegmentEntry | None, log: PartitionLog, first: int, end: int) -> None:
        """Each of the offsets is in a finished copy of the log's lineage that the store has, and that is not `entry`."""
        offset = first
        while offset < end:
            epoch = log.leader_epochs.epoch_of(offset)
            assert epoch is not None, f"{log.topic_partition}: the epoch of offset {offset} is not known"
            found = metadata.find(TopicIdPartition(log.topic_id, *log.topic_partition), epoch, offset)
            where = f"offset {offset} of {log.topic_partition}, which begins at {log.log_start_offset}"
            assert found is not None, f"{where}, is neither here nor in the store"
            assert entry is None or found.id != entry.id, f"{where}, is in a copy that is removed"
            assert self.has_all(found), f"{where}, is in {_told(found)}, of which the store has {self.parts.get(found.id.uuid, {}).keys()}"
            offset = found.end_offset + 1

    def _is_committed(self, entry: SegmentEntry, content: object) -> bool:
        committed = self.committed.get(TopicPartition(entry.id.partition.topic, entry.id.partition.partition))
        return committed is None or committed.bytes_between(entry.start_offset, entry.end_offset + 1) == content


class SimulatedRemoteStore:
    """A RemoteStore: the way of one life of a broker to the objects. `filesystem` is its disk."""

    chunk_bytes = 4 << 20
    copy_bytes = save_bytes = 1 << 20

    def __init__(self, objects: RemoteObjects, host: str, life: Life, filesystem: FileSystem) -> None:
        self._objects = objects
        self._host = host
        self._life = life
        self._filesystem = filesystem

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        """See RemoteStore."""
        read = self._filesystem.read_file
        try:
            indexes = {
                IndexKind.OFFSET: read(files.offset_index),
                IndexKind.TIMESTAMP: read(files.time_index),
                IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
                IndexKind.LEADER_EPOCH: files.leader_epochs,
                IndexKind.TRANSACTION: b"" if files.transaction_index is None else read(files.transaction_index),
            }
            contents: list[object] = [read(files.log), indexes, entry.start_offset]
        except OSError as error:
            raise RemoteStoreError(str(error)) from error
        for part, content in zip(PARTS, contents, strict=True):
            await self._ask(f"put {part}", partial(self._objects.put, entry, part, content))
        return None

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes:
        """See RemoteStore."""
        records = await self._ask("get log", lambda: self._objects.get(entry, LOG))
        assert isinstance(records, bytes)
        if end > len(records):
            raise RemoteStoreError(f"{_told(entry)} has {len(records)} bytes, and {end} were expected")
        return records[start:end]

    async def index(self, entry: SegmentEntry, kind: IndexKind, most: int = MAX_INDEX_BYTES) -> bytes:
        """See RemoteStore."""
        indexes = await self._ask("get indexes", lambda: self._objects.get(entry, INDEXES))
        assert isinstance(indexes, dict)
        found = indexes[kind]
        assert isinstance(found, bytes)
        assert len(found) <= most
        return found

    async def index_size(self, entry: SegmentEntry, kind: IndexKind) -> int:
        """See RemoteStore."""
        return len(await self.index(entry, kind))

    async def save_indexes(self, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
        """See RemoteStore."""
        for kind, path in paths.items():
            data = await self.index(entry, kind)
            file = self._filesystem.open(path, create=True)
            file.pwrite(data, 0)
            file.close()

    async def manifest(self, entry: SegmentEntry) -> bytes | None:
        """See RemoteStore."""
        return None

    async def size(self, entry: SegmentEntry) -> int:
        """See RemoteStore."""
        return entry.size

    async def delete(self, entry: SegmentEntry) -> None:
        """See RemoteStore."""
        try:
            self._objects.check_removal(self._life.broker_id, entry)
        except AssertionError as error:  # the task of the broker would log it, and go on
            self._objects.network.loop.in_nobodys_name(0.0, _raise, error)
        for part in reversed(PARTS):
            await self._ask(f"delete {part}", partial(self._objects.remove, entry, part))

    async def probe(self) -> None:
        """See RemoteStore. A broker starts although the store is in trouble, since that is no fault of its start."""

    async def now_ms(self) -> int | None:
        """See RemoteStore. Clocks of brokers are wrong in stories, and no rule here depends on them."""
        return None

    async def owner(self, claim: str | None = None) -> str | None:
        """See RemoteStore. A story has one cluster."""
        return claim

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """See RemoteStore. The names are in no layout."""
        for uuid in self._objects.parts:
            yield StoredObject(uuid.hex(), 0)

    async def close(self) -> None:
        """See RemoteStore."""

    async def _ask(self, request: str, effect: Callable[[], _Result]) -> _Result:
        """Has a request take its way, and waits for its answer."""
        network = self._objects.network
        answered: asyncio.Future[_Result] = network.loop.create_future()
        network.send(self._host, STORE, self._arrive, request, effect, answered)
        try:
            async with asyncio.timeout(CALL_S):
                return await answered
        except TimeoutError:
            raise RemoteStoreError(f"{request}: no answer within {CALL_S} s") from None

    def _arrive(self, request: str, effect: Callable[[], _Result], answered: asyncio.Future[_Result]) -> None:
        """Runs in nobody's name."""
        objects, network = self._objects, self._objects.network
        if not network.passes(self._host, STORE) or not objects.may_arrive(self._life, request):
            return
        chance, trouble = objects.random.random(), objects.trouble
        if chance < trouble.fails:
            self._answer(answered, RemoteStoreError(f"{request}: 503"))
        elif chance < trouble.fails + trouble.is_late and not self._life.is_dead:
            network.loop.in_nobodys_name(objects.random.uniform(0, 2 * CALL_S), self._do_late, request, effect, answered)
        else:
            self._do(request, effect, answered)

    def _do_late(self, request: str, effect: Callable[[], _Result], answered: asyncio.Future[_Result]) -> None:
        """The broker may have given the request up. If it has died, its connection was closed before all of the request was there."""
        if not self._life.is_dead:
            self._do(request, effect, answered)

    def _do(self, request: str, effect: Callable[[], _Result], answered: asyncio.Future[_Result]) -> None:
        objects = self._objects
        objects.requests[request] += 1
        try:
            result: _Result | RemoteStoreError = effect()
        except RemoteStoreError as error:
            result = error
        objects.on_done(self._life, request)
        if objects.random.random() >= objects.trouble.is_lost:
            objects.network.send(STORE, self._host, self._answer, answered, result)

    def _answer(self, answered: asyncio.Future[_Result], result: _Result | RemoteStoreError) -> None:
        if self._objects.network.passes(STORE, self._host):
            self._life.call_soon(_settle, answered, result)


def _settle(answered: asyncio.Future[_Result], result: _Result | RemoteStoreError) -> None:
    if answered.done():
        return
    if isinstance(result, RemoteStoreError):
        answered.set_exception(result)
    else:
        answered.set_result(result)


def _raise(error: AssertionError) -> None:
    raise error


def _told(entry: SegmentEntry) -> str:
    partition = entry.id.partition
    return (
        f"copy {entry.id.uuid.hex()[:8]} of offsets {entry.start_offset} to {entry.end_offset} of {partition.topic}-{partition.partition}"
    )
