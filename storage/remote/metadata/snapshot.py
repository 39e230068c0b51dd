"""Writes and reads snapshots of what a broker knows from one partition of `__remote_log_metadata`, so that a restart reads only the tail.

A snapshot is private to the broker, and worth nothing once it disagrees with the topic: it names the cluster, the topic by its id, the
number of its partitions, the partition, and the offset and leader epoch up to which it has everything. Numbers are little-endian:

    "OTRM" | version u16 | head length u32 | head (JSON) | for each user partition: its columns | crc32c u32 of all before

The columns of a user partition are the uuids (16 bytes each), the lengths of the packed entries (u32), the packed entries (see
`packed_entries`), and for each leader epoch the positions (u32) of its finished copies and of its unreferenced ones. The head has their
numbers. A million records are loaded in a third of a second, a slice of the event loop's turn at a time.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from struct import Struct, pack, unpack
from struct import error as struct_error
from typing import Any, Final, NamedTuple, TypeVar

from ottla.large_table import LargeTable
from ottla.pauses import pause
from ottla.protocol.records.checksum import crc32c
from ottla.storage.remote.entries import TopicIdPartition
from ottla.storage.remote.metadata.segment_cache import EpochSegments, SegmentCache

_T = TypeVar("_T")

_MAGIC: Final = b"OTRM"
_VERSION: Final = 1
_FRONT: Final = Struct("<4sHI")
_CRC: Final = Struct("<I")
_UUID_BYTES: Final = 16
_AT_ONCE: Final = 250
"""Entries between two pauses, a fraction of a millisecond."""


class SnapshotUnusable(Exception):
    """The snapshot is of another topic or release, or damaged. The partition is read from its start."""


class SnapshotIdentity(NamedTuple):
    """The facts that a snapshot and the topic have to agree on."""

    cluster_id: str
    topic_id: bytes
    partition_count: int
    partition: int


class Snapshot(NamedTuple):
    """The caches with all records before `offset`; `last_epoch` is the leader epoch of the last one."""

    offset: int
    last_epoch: int
    caches: list[SegmentCache]


async def encode_snapshot(identity: SnapshotIdentity, snapshot: Snapshot) -> list[bytes]:
    """Returns the file's content in parts. The caches must not change meanwhile."""
    parts: list[bytes] = []
    described = [await _describe(cache, parts) for cache in snapshot.caches]
    head = json.dumps(
        {
            "cluster_id": identity.cluster_id,
            "topic_id": identity.topic_id.hex(),
            "partition_count": identity.partition_count,
            "partition": identity.partition,
            "offset": snapshot.offset,
            "last_epoch": snapshot.last_epoch,
            "user_partitions": described,
        }
    ).encode()
    parts[:0] = [_FRONT.pack(_MAGIC, _VERSION, len(head)), head]
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
        await pause()
    parts.append(_CRC.pack(crc))
    return parts


async def _describe(cache: SegmentCache, parts: list[bytes]) -> dict[str, Any]:
    """Appends the columns of a user partition, and describes them."""
    partition = cache.partition
    uuids: list[bytes] = []
    lengths: list[bytes] = []
    packed: list[bytes] = []
    positions: LargeTable[int, int] = LargeTable()
    async for entries in _chunks(cache.packed.keys_and_values()):
        for number, (key, _) in enumerate(entries, len(positions)):
            positions[key] = number
        uuids.append(b"".join([key.to_bytes(_UUID_BYTES, "big") for key, _ in entries]))
        lengths.append(pack(f"<{len(entries)}I", *[len(each) for _, each in entries]))
        packed.append(b"".join([each for _, each in entries]))
    parts += [*uuids, *lengths, *packed]
    epochs = []
    for epoch, segments in cache.epochs.items():
        unreferenced = [key for key in segments.unreferenced if key in positions]
        for listed in (segments.keys, unreferenced):
            async for keys in _chunks(listed):
                parts.append(pack(f"<{len(keys)}I", *[positions[key] for key in keys]))
        epochs.append([epoch, segments.highest_offset, len(segments.keys), len(unreferenced)])
    await _empty(positions)
    return {
        "topic": partition.topic,
        "topic_id": partition.topic_id.hex(),
        "partition": partition.partition,
        "entries": len(cache.packed),
        "packed_bytes": sum(map(len, packed)),
        "epochs": epochs,
        "marked": None if cache.marked_key is None else f"{cache.marked_key:x}",
    }


async def _empty(table: LargeTable[int, int]) -> None:
    """Frees the entries with pauses. All at once would take as long as a million of them."""
    for number, _ in enumerate(table.drain()):
        if number % _AT_ONCE == 0:
            await pause()


async def decode_snapshot(pieces: Sequence[bytes], identity: SnapshotIdentity) -> Snapshot:
    """Reads a snapshot from pieces of one length; the last one may be shorter. Raises SnapshotUnusable."""
    content = _Content(pieces)
    try:
        magic, version, head_bytes = _FRONT.unpack(content.read(0, _FRONT.size))
        if magic != _MAGIC or version != _VERSION:
            raise SnapshotUnusable(f"it begins with {magic!r}, version {version}")
        (crc,) = _CRC.unpack(content.read(content.size - _CRC.size, _CRC.size))
        if crc != await content.checksum(content.size - _CRC.size):
            raise SnapshotUnusable("its checksum is wrong")
        head = json.loads(content.read(_FRONT.size, head_bytes))
        found = SnapshotIdentity(head["cluster_id"], bytes.fromhex(head["topic_id"]), head["partition_count"], head["partition"])
        if found != identity:
            raise SnapshotUnusable(f"it is of {found}, not of {identity}")
        reader = _Columns(content, _FRONT.size + head_bytes)
        caches = [await reader.cache(described) for described in head["user_partitions"]]
        return Snapshot(head["offset"], head["last_epoch"], caches)
    except (struct_error, ValueError, KeyError, TypeError, IndexError) as error:
        raise SnapshotUnusable(f"it cannot be read: {error!r}") from None


class _Content:
    """The bytes of a snapshot."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._piece_bytes = len(pieces[0]) if pieces else 1
        self.size = sum(map(len, pieces))

    def read(self, at: int, length: int) -> bytes:
        """The bytes at a position. Raises IndexError beyond the end."""
        number, start = divmod(at, self._piece_bytes)
        found = self._pieces[number][start : start + length]
        while len(found) < length:
            number += 1
            found += self._pieces[number][: length - len(found)]
        return found

    async def checksum(self, end: int) -> int:
        """The checksum of the bytes before `end`."""
        crc = at = 0
        for piece in self._pieces:
            crc = crc32c(memoryview(piece)[: max(end - at, 0)], crc)
            at += len(piece)
            await pause()
        return crc


class _Columns:
    """Reads the columns behind the head, one after the other."""

    def __init__(self, content: _Content, at: int) -> None:
        self._content = content
        self._at = at

    async def cache(self, described: dict[str, Any]) -> SegmentCache:
        """The cache of a user partition."""
        partition = TopicIdPartition(bytes.fromhex(described["topic_id"]), described["topic"], described["partition"])
        cache = SegmentCache(partition)
        marked = described.get("marked")
        cache.marked_key = None if marked is None else int(marked, 16)
        count = described["entries"]
        read, keys = self._content.read, []
        uuids_at, lengths_at = self._at, self._at + _UUID_BYTES * count
        at = first_packed_at = lengths_at + 4 * count
        for first in range(0, count, _AT_ONCE):
            some = min(_AT_ONCE, count - first)
            uuids = read(uuids_at + _UUID_BYTES * first, _UUID_BYTES * some)
            lengths = unpack(f"<{some}I", read(lengths_at + 4 * first, 4 * some))
            packed = read(at, sum(lengths))
            at += len(packed)
            begin = 0
            for number, length in enumerate(lengths):
                key = int.from_bytes(uuids[_UUID_BYTES * number : _UUID_BYTES * (number + 1)], "big")
                keys.append(key)
                cache.packed[key] = packed[begin : begin + length]
                begin += length
            await pause()
        if at - first_packed_at != described["packed_bytes"] or len(cache.packed) != count:
            raise SnapshotUnusable("its columns do not fit each other")
        self._at = at
        for epoch, highest, finished, unreferenced in described["epochs"]:
            segments = cache.epochs[epoch] = EpochSegments()
            segments.highest_offset = highest
            segments.keys = await self._listed(keys, finished)
            segments.unreferenced = set(await self._listed(keys, unreferenced))
        while keys:
            del keys[-_AT_ONCE:]
            await pause()
        return cache

    async def _listed(self, keys: list[int], count: int) -> list[int]:
        found: list[int] = []
        for first in range(0, count, _AT_ONCE):
            some = min(_AT_ONCE, count - first)
            found += [keys[position] for position in unpack(f"<{some}I", self._content.read(self._at + 4 * first, 4 * some))]
            await pause()
        self._at += 4 * count
        return found


async def _chunks(items: Iterable[_T]) -> AsyncIterator[list[_T]]:
    rest = iter(items)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
        await pause()
