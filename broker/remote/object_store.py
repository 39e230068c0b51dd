"""Keeps segments as objects in the layout of Aiven's plugin, plain or compressed with zstd.

A copy is three objects: the records in chunks, the indexes, and the manifest. The manifest is written last, and without it there is no
copy. An entry's objects never change, so manifests that were read are kept, until one turns out to have been changed on its way.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, MutableSequence, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.broker.remote.objects import PART_BYTES, PARTS_AT_ONCE, Objects
from ottla.config.remote_store import OBJECT_KEY, OBJECT_PREFIX, REMOTE_SIZE, StoreSettings
from ottla.protocol.records.batch import CODEC_MASK, HEADER_SIZE, parse_header
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.remote.chunk_index import ChunkIndex, fixed_index
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.manifest import (
    MAX_MANIFEST_BYTES,
    MalformedManifest,
    Manifest,
    join_indexes,
    read_manifest,
    split_indexes,
    write_manifest,
)
from ottla.storage.remote.memory_budget import MemoryBudget
from ottla.storage.remote.object_layout import (
    INDEXES,
    LOG,
    MANIFEST,
    CustomMetadata,
    MalformedCustomMetadata,
    custom_metadata,
    main_key,
    object_key,
    read_custom_metadata,
)
from ottla.storage.remote.ports import IndexKind, RemoteStoreError, SegmentFiles
from ottla.storage.remote.threads import Threads

MAX_INDEXES_BYTES: Final = 256 << 20
"""Largest object with the indexes of a segment, bytes."""
MOST_MANIFESTS: Final = 1000
"""Manifests that are kept."""
ZSTD_LEVEL: Final = 3

_Result = TypeVar("_Result")


class ObjectStore:
    """A RemoteStore on objects. `filesystem` reads the files that are copied, which are on the real disk."""

    def __init__(self, objects: Objects, settings: StoreSettings, filesystem: FileSystem, budget: MemoryBudget, threads: Threads) -> None:
        self._objects = objects
        self._settings = settings
        self._filesystem = filesystem
        self._budget = budget
        self._threads = threads
        self._manifests: OrderedDict[bytes, Manifest] = OrderedDict()
        self._reads: dict[tuple[bytes, str], asyncio.Task[bytes]] = {}
        self.chunk_bytes = settings.chunk_bytes

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        """See RemoteStore."""
        prefix = self._settings.key_prefix
        size = PART_BYTES * PARTS_AT_ONCE
        await self._budget.take(size)
        try:
            chunks, is_compressed = await self._copy_records(entry, files)
            joined, ranges = join_indexes(await self._in_thread(partial(self._read_indexes, files)))
            await self._objects.put(object_key(prefix, entry, INDEXES), joined)
            manifest = write_manifest(Manifest(chunks, ranges, is_compressed), entry)
            await self._objects.put(object_key(prefix, entry, MANIFEST), manifest)
        finally:
            self._budget.give_back(size)
        fields = self._settings.custom_fields
        return custom_metadata(
            CustomMetadata(
                chunks.transformed_size + len(joined) + len(manifest) if REMOTE_SIZE in fields else None,
                prefix if OBJECT_PREFIX in fields else None,
                main_key(entry) if OBJECT_KEY in fields else None,
            )
        )

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes:
        """See RemoteStore."""
        manifest = await self._manifest(entry)
        if end > manifest.chunks.original_size:
            raise RemoteStoreError(f"{main_key(entry)} has {manifest.chunks.original_size} bytes, and {end} were expected")
        key = self._key(entry, LOG)
        if not manifest.is_compressed:
            return await self._objects.get_range(key, start, end)
        found = manifest.chunks.covering(start, end)
        size = min(len(found.sizes) * manifest.chunks.original_chunk_size, entry.size - found.original_start)
        try:
            data = await self._objects.get_range(key, found.start, found.end)
            plain = await self._in_thread(partial(_decompressed, data, found.sizes, manifest.chunks.original_chunk_size, size))
        except RemoteStoreError:
            self._manifests.pop(entry.id.uuid, None)  # the sizes of chunks in it may be wrong
            raise
        return plain[start - found.original_start : end - found.original_start]

    async def index(self, entry: SegmentEntry, kind: IndexKind) -> bytes:
        """Reads manifest and indexes at once. Calls for several indexes of a segment at the same time share both. See RemoteStore."""
        data, manifest = await asyncio.gather(self._read(entry, INDEXES, MAX_INDEXES_BYTES), self._manifest(entry))
        try:
            return split_indexes(data, manifest.indexes).get(kind, b"")
        except MalformedManifest as error:
            self._manifests.pop(entry.id.uuid, None)
            raise RemoteStoreError(f"{main_key(entry)}: {error}") from None

    async def delete(self, entry: SegmentEntry) -> None:
        """See RemoteStore."""
        self._manifests.pop(entry.id.uuid, None)
        for suffix in (MANIFEST, INDEXES, LOG):  # first that without which the others are no copy
            await self._objects.delete(self._key(entry, suffix))

    async def probe(self) -> None:
        """See RemoteStore."""
        await self._objects.probe()

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """See RemoteStore. Names are keys without `key.prefix`."""
        whole = self._settings.key_prefix + prefix
        folder = whole.rpartition("/")[0]
        async for key in self._objects.list(folder or None):
            if key.startswith(whole):
                yield key.removeprefix(self._settings.key_prefix)

    async def close(self) -> None:
        """See RemoteStore."""
        for read in self._reads.values():
            read.cancel()
        await self._objects.close()

    # -- copying ---------------------------------------------------------------------------------------------------------

    async def _copy_records(self, entry: SegmentEntry, files: SegmentFiles) -> tuple[ChunkIndex, bool]:
        """Uploads the records. Returns how they are cut into chunks, and whether those are compressed."""
        key = object_key(self._settings.key_prefix, entry, LOG)
        chunk_bytes = self._settings.chunk_bytes
        size, has_codec = await self._in_thread(partial(self._examine, files.log))
        if size != entry.size:
            raise RemoteStoreError(f"{files.log} has {size} bytes, and the segment to copy {entry.size}")
        if not self._settings.is_compressed or (self._settings.uses_heuristic and has_codec):
            await self._objects.put_file(key, files.log, size)
            return fixed_index(chunk_bytes, size), False
        sizes: list[int] = []
        await self._objects.put_pieces(key, self._compressed(files.log, size, sizes), size)
        return ChunkIndex(chunk_bytes, size, sizes, is_fixed=False), True

    async def _compressed(self, path: str, size: int, sizes: MutableSequence[int]) -> AsyncIterator[bytes]:
        """Yields the chunks of a file, each a frame, and notes their sizes."""
        for at in range(0, size, self._settings.chunk_bytes):
            frame = await self._in_thread(partial(self._compress_chunk, path, at, min(self._settings.chunk_bytes, size - at)))
            sizes.append(len(frame))
            yield frame

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        try:
            return await self._threads(work)
        except OSError as error:
            raise RemoteStoreError(f"{error.filename or 'a segment to copy'}: {error.strerror or error}") from error

    def _examine(self, path: str) -> tuple[int, bool]:
        """Returns the size of a segment, and whether its first batch is compressed."""
        file = self._filesystem.open(path, read_only=True)
        try:
            data = file.pread(HEADER_SIZE, 0)
            return file.size(), len(data) == HEADER_SIZE and bool(parse_header(data).attributes & CODEC_MASK)
        finally:
            file.close()

    def _compress_chunk(self, path: str, at: int, length: int) -> bytes:
        import zstandard  # most brokers do not need it

        file = self._filesystem.open(path, read_only=True)
        try:
            data = file.pread(length, at)
        finally:
            file.close()
        if len(data) != length:
            raise OSError(f"{path} has become shorter")
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)

    def _read_indexes(self, files: SegmentFiles) -> dict[IndexKind, bytes]:
        read = self._filesystem.read_file
        parts = {
            IndexKind.OFFSET: read(files.offset_index),
            IndexKind.TIMESTAMP: read(files.time_index),
            IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
            IndexKind.LEADER_EPOCH: files.leader_epochs,
        }
        if files.transaction_index is not None:
            parts[IndexKind.TRANSACTION] = read(files.transaction_index)
        return parts

    # -- reading ---------------------------------------------------------------------------------------------------------

    def _key(self, entry: SegmentEntry, suffix: str) -> str:
        try:
            return object_key(self._settings.key_prefix, entry, suffix, read_custom_metadata(entry.custom))
        except MalformedCustomMetadata as error:
            raise RemoteStoreError(f"{main_key(entry)}: its custom metadata is malformed: {error}") from None

    async def _manifest(self, entry: SegmentEntry) -> Manifest:
        manifest = self._manifests.get(entry.id.uuid)
        if manifest is not None:
            self._manifests.move_to_end(entry.id.uuid)
            return manifest
        data = await self._read(entry, MANIFEST, MAX_MANIFEST_BYTES)
        try:
            manifest = read_manifest(data)
        except MalformedManifest as error:
            raise RemoteStoreError(f"{main_key(entry)}: its manifest is malformed: {error}") from None
        if manifest.encryption is not None:
            raise RemoteStoreError(f"{main_key(entry)} is encrypted with the key {manifest.encryption.key_id}, which is not here")
        if manifest.chunks.original_size != entry.size:
            raise RemoteStoreError(f"{main_key(entry)} has {manifest.chunks.original_size} bytes, and its entry says {entry.size}")
        self._manifests[entry.id.uuid] = manifest
        if len(self._manifests) > MOST_MANIFESTS:
            self._manifests.popitem(last=False)
        return manifest

    async def _read(self, entry: SegmentEntry, suffix: str, most: int) -> bytes:
        """Reads a whole object, once for all that want it at the same time."""
        place = entry.id.uuid, suffix
        task = self._reads.get(place)
        if task is None:
            task = self._reads[place] = asyncio.get_running_loop().create_task(self._objects.get(self._key(entry, suffix), most))
            task.add_done_callback(partial(self._on_read, place))
        return await asyncio.shield(task)

    def _on_read(self, place: tuple[bytes, str], task: asyncio.Task[bytes]) -> None:
        del self._reads[place]
        if not task.cancelled():
            task.exception()  # asyncio would log it if all readers had left


def _decompressed(data: bytes, sizes: Sequence[int], chunk_bytes: int, total: int) -> bytes:
    """Takes the frames of consecutive chunks apart, each of at most `chunk_bytes`, together `total`. Blocks. Raises OSError for others."""
    import zstandard

    parts = []
    at = 0
    for size in sizes:
        frame = data[at : at + size]
        at += size
        try:
            if zstandard.frame_content_size(frame) > chunk_bytes:
                raise OSError("a chunk is larger than its manifest says")
            parts.append(zstandard.ZstdDecompressor().decompress(frame, max_output_size=chunk_bytes))
        except zstandard.ZstdError as error:
            raise OSError(f"a chunk is no zstd frame: {error}") from None
    plain = b"".join(parts)
    if len(plain) != total:
        raise OSError(f"chunks have {len(plain)} bytes, and their manifest says {total}")
    return plain
