"""Keeps segments as objects in the layout of Aiven's plugin, plain, compressed with zstd, encrypted, or both.

A copy is three objects: the records in chunks, the indexes, and the manifest. The manifest is written last, and without it there is no
copy. An entry's objects never change, so manifests that were read are kept, until one turns out to have been changed on its way.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableSequence, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from ottla.broker.remote.encryption import OVERHEAD_BYTES, CopyCipher, new_secret, open_key_ring
from ottla.broker.remote.index_objects import PIECE_BYTES as INDEX_PIECE_BYTES
from ottla.broker.remote.index_objects import SAVE_BYTES, IndexChanged, IndexFiles, IndexParts
from ottla.broker.remote.objects import COPY_BYTES, PART_BYTES, Objects
from ottla.config.remote_store import OBJECT_KEY, OBJECT_PREFIX, REMOTE_SIZE, StoreSettings
from ottla.protocol.records.batch import CODEC_MASK, HEADER_SIZE, parse_header
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.remote.chunk_index import ChunkIndex, fixed_index
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.manifest import (
    MAX_MANIFEST_BYTES,
    Encryption,
    MalformedManifest,
    Manifest,
    read_manifest,
    size_of_indexes,
    write_manifest,
)
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
from ottla.storage.remote.ports import (
    MAX_INDEX_BYTES,
    OWNER_NAME,
    IndexKind,
    RemoteObjectDamaged,
    RemoteObjectMissing,
    RemoteStoreError,
    SegmentFiles,
    StoredObject,
)
from ottla.storage.remote.threads import Threads

MAX_INDEXES_BYTES: Final = 256 * 1024 * 1024
"""Largest object with the indexes of a segment, bytes."""
MOST_MANIFESTS: Final = 1000
"""Manifests that are kept."""
MOST_CHUNKS: Final = 131_072
"""Chunks of all manifests that are kept; each takes a hundred bytes."""
PIECE_BYTES: Final = 1 << 22
"""Bytes of a segment that are read at a time where they are copied as they are.

obstore itself reads a file with two more copies of its bytes: 1.25 ms of processor time per MB to copy a segment, instead of 0.95.
"""
ZSTD_LEVEL: Final = 3
CLOCK: Final = ".ottla-clock"
"""The object that is written anew to learn the time of the store."""
_MAX_OWNER_BYTES: Final = 1000

_Result = TypeVar("_Result")


class _Known(NamedTuple):
    """A manifest, and the cipher of its copy if that is encrypted."""

    manifest: Manifest
    cipher: CopyCipher | None


class ObjectStore:
    """A RemoteStore on objects. `filesystem` reads the files that are copied, which are on the real disk."""

    def __init__(
        self,
        objects: Objects,
        settings: StoreSettings,
        filesystem: FileSystem,
        threads: Threads,
        secret: bytes | None = None,
    ) -> None:
        """`secret` is that of the broker (`encryption`), by default a new one. Raises ConfigError for keys that cannot be used."""
        self._objects = objects
        self._settings = settings
        self._filesystem = filesystem
        self._threads = threads
        self._key_ring = open_key_ring(settings.encryption, new_secret() if secret is None else secret)
        self._manifests: OrderedDict[bytes, _Known] = OrderedDict()
        self._chunks = 0
        """Chunks of `_manifests`."""
        self._reads: dict[tuple[bytes, str], asyncio.Task[bytes]] = {}
        self.chunk_bytes = settings.chunk_bytes
        self.copy_bytes = COPY_BYTES
        self.save_bytes = SAVE_BYTES

    async def copy(self, entry: SegmentEntry, files: SegmentFiles) -> bytes | None:
        """See RemoteStore."""
        prefix = self._settings.key_prefix
        encryption, cipher = await self._in_thread(partial(self._seal, entry))
        indexes = await self._in_thread(partial(IndexParts, self._filesystem, files, cipher))
        _check_size(entry, INDEXES, indexes.size, MAX_INDEXES_BYTES)
        chunks, is_compressed = await self._copy_records(entry, files, cipher)
        await self._copy_indexes(object_key(prefix, entry, INDEXES), indexes)
        manifest = write_manifest(Manifest(chunks, indexes.ranges, is_compressed, encryption), entry)
        _check_size(entry, MANIFEST, len(manifest), MAX_MANIFEST_BYTES)
        await self._objects.put(object_key(prefix, entry, MANIFEST), manifest)
        fields = self._settings.custom_fields
        return custom_metadata(
            CustomMetadata(
                chunks.transformed_size + indexes.size + len(manifest) if REMOTE_SIZE in fields else None,
                prefix if OBJECT_PREFIX in fields else None,
                main_key(entry) if OBJECT_KEY in fields else None,
            )
        )

    async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes | memoryview:
        """See RemoteStore."""
        manifest, cipher = await self._manifest(entry)
        if end > manifest.chunks.original_size:
            raise RemoteObjectDamaged(f"{main_key(entry)} has {manifest.chunks.original_size} bytes, and {end} were expected")
        key = self._key(entry, LOG)
        if not manifest.is_compressed and cipher is None:
            return await self._objects.get_range(key, start, end)
        found = manifest.chunks.covering(start, end)
        size = min(len(found.sizes) * manifest.chunks.original_chunk_size, entry.size - found.original_start)
        try:
            data = await self._objects.get_range(key, found.start, found.end)
            plain = await self._in_thread(
                partial(_original, data, found.sizes, manifest, size, cipher), main_key(entry), RemoteObjectDamaged
            )
        except RemoteStoreError:
            self._forget(entry)  # the sizes of chunks in it may be wrong
            raise
        return plain[start - found.original_start : end - found.original_start]

    async def index(self, entry: SegmentEntry, kind: IndexKind, most: int = MAX_INDEX_BYTES) -> bytes:
        """See RemoteStore."""
        manifest, cipher = await self._with_ranges(entry)
        start, size = manifest.indexes.get(kind, (0, 0))
        _check_size(entry, INDEXES, size, min(most + (0 if cipher is None else OVERHEAD_BYTES), MAX_INDEXES_BYTES))
        if not size:
            return b""
        data = await self._objects.get_range(self._key(entry, INDEXES), start, start + size)
        try:
            return bytes(data) if cipher is None else await self._in_thread(partial(cipher.decrypt, data), kind.name)
        except RemoteStoreError as error:
            raise self._wrong(entry, error) from None

    async def index_size(self, entry: SegmentEntry, kind: IndexKind) -> int:
        """See RemoteStore."""
        manifest, cipher = await self._with_ranges(entry)
        size = manifest.indexes.get(kind, (0, 0))[1]
        _check_size(entry, INDEXES, size, MAX_INDEXES_BYTES)
        return size if cipher is None else max(0, size - OVERHEAD_BYTES)

    async def save_indexes(self, entry: SegmentEntry, paths: Mapping[IndexKind, str]) -> None:
        """Reads the manifest, and at the same time the beginning of the indexes, which is mostly all. See RemoteStore."""
        key = self._key(entry, INDEXES)
        beginning = asyncio.ensure_future(self._objects.get_beginning(key, 0, INDEX_PIECE_BYTES))
        beginning.add_done_callback(_look_at_exception)
        try:
            manifest, cipher = await self._with_ranges(entry)
            head = await beginning
        finally:
            beginning.cancel()
        size = size_of_indexes(manifest.indexes)
        _check_size(entry, INDEXES, size, MAX_INDEXES_BYTES)
        try:
            files = IndexFiles(self._filesystem, paths, manifest.indexes, cipher)
            at, asked = 0, INDEX_PIECE_BYTES
            while head:
                await self._threads(partial(files.write, head, at))
                at += len(head)
                if at >= size or len(head) < asked:
                    break
                asked = min(INDEX_PIECE_BYTES, size + 1 - at)
                head = await self._objects.get_beginning(key, at, at + asked)
            if at != size:
                raise IndexChanged(f"the indexes end at {size}, and their object has {'more' if at > size else at} bytes")
            await self._threads(files.finish)
        except IndexChanged as error:
            raise self._wrong(entry, error) from None

    async def _with_ranges(self, entry: SegmentEntry) -> _Known:
        """The manifest, whose indexes follow one another."""
        known = await self._manifest(entry)
        try:
            size_of_indexes(known.manifest.indexes)
        except MalformedManifest as error:
            raise self._wrong(entry, error) from None
        return known

    def _wrong(self, entry: SegmentEntry, error: Exception) -> RemoteStoreError:
        """Forgets a manifest that may have been changed on its way."""
        self._forget(entry)
        return RemoteObjectDamaged(f"{main_key(entry)}: {error}")

    async def manifest(self, entry: SegmentEntry) -> bytes | None:
        """See RemoteStore."""
        return await self._read(entry, MANIFEST, MAX_MANIFEST_BYTES)

    async def size(self, entry: SegmentEntry) -> int:
        """See RemoteStore."""
        data = await self._read(entry, MANIFEST, MAX_MANIFEST_BYTES)
        try:
            return read_manifest(data).chunks.original_size
        except MalformedManifest as error:
            raise RemoteObjectDamaged(f"{main_key(entry)}: its manifest is malformed: {error}") from None

    async def delete(self, entry: SegmentEntry) -> None:
        """See RemoteStore."""
        self._forget(entry)
        for suffix in (MANIFEST, INDEXES, LOG):  # first that without which the others are no copy
            await self._objects.delete(self._key(entry, suffix))

    async def probe(self) -> None:
        """See RemoteStore."""
        await self._objects.probe()

    async def now_ms(self) -> int | None:
        """See RemoteStore."""
        return await self._objects.written_at_ms(self._settings.key_prefix + CLOCK)

    async def owner(self, claim: str | None = None) -> str | None:
        """See RemoteStore. Of brokers that claim it at once, the first has it."""
        key = self._settings.key_prefix + OWNER_NAME
        known = await self._owner(key)
        if known is None and claim is not None:
            await self._objects.put(key, f"{claim}\n".encode())
            known = await self._owner(key)
        return known

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """See RemoteStore. Names are keys without `key.prefix`."""
        own = self._settings.key_prefix
        folder = (own + prefix).rpartition("/")[0]
        async for key, modified_ms in self._objects.list(folder or None):
            if key.startswith(own + prefix) and key not in (own + CLOCK, own + OWNER_NAME):
                yield StoredObject(key.removeprefix(own), modified_ms)

    async def close(self) -> None:
        """See RemoteStore."""
        for read in self._reads.values():
            read.cancel()
        await self._objects.close()

    # -- copying ---------------------------------------------------------------------------------------------------------

    def _seal(self, entry: SegmentEntry) -> tuple[Encryption | None, CopyCipher | None]:
        encryption = self._settings.encryption
        if self._key_ring is None or encryption is None or not encryption.is_enabled:
            return None, None
        return self._key_ring.seal(entry.id.uuid)

    async def _copy_records(self, entry: SegmentEntry, files: SegmentFiles, cipher: CopyCipher | None) -> tuple[ChunkIndex, bool]:
        """Uploads the records. Returns how they are cut into chunks, and whether those are compressed. No records are as they are."""
        key = object_key(self._settings.key_prefix, entry, LOG)
        chunk_bytes = self._settings.chunk_bytes
        size, has_codec = await self._in_thread(partial(self._examine, files.log))
        if size != entry.size:
            raise RemoteStoreError(f"{files.log} has {size} bytes, and the segment to copy {entry.size}")
        if not size:
            await self._objects.put(key, b"")
            return fixed_index(chunk_bytes, 0), False
        is_compressed = self._settings.is_compressed and not (self._settings.uses_heuristic and has_codec)
        sizes: list[int] = []
        is_plain = not is_compressed and cipher is None
        step = PIECE_BYTES if is_plain else chunk_bytes
        await self._objects.put_pieces(key, self._pieces(files.log, size, step, partial(_transformed, is_compressed, cipher), sizes), size)
        if is_plain:
            return fixed_index(chunk_bytes, size), False
        return ChunkIndex(chunk_bytes, size, sizes, is_fixed=not is_compressed), is_compressed

    async def _copy_indexes(self, key: str, indexes: IndexParts) -> None:
        """Uploads the indexes. Those of a copy that is repeated have the same bytes."""
        if indexes.size <= PART_BYTES:
            await self._objects.put(key, await self._in_thread(lambda: b"".join(indexes.pieces())))
            return
        await self._objects.put_pieces(key, self._of_thread(indexes.pieces()), indexes.size)

    async def _of_thread(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (piece := await self._in_thread(partial(next, pieces, None))) is not None:
            yield piece

    async def _pieces(
        self, path: str, size: int, step: int, transform: Callable[[bytes, int], bytes], sizes: MutableSequence[int]
    ) -> AsyncIterator[bytes]:
        """Yields a file in pieces of `step` bytes, each transformed, and notes their sizes."""
        for at in range(0, size, step):
            piece = await self._in_thread(partial(self._read_piece, path, at, min(step, size - at), transform))
            sizes.append(len(piece))
            yield piece

    async def _in_thread(
        self, work: Callable[[], _Result], name: str = "a segment to copy", kind: type[RemoteStoreError] = RemoteStoreError
    ) -> _Result:
        """Does work that blocks. An OSError becomes an error of this kind, which has the `name` if the error names no file."""
        try:
            return await self._threads(work)
        except OSError as error:
            raise kind(f"{error.filename or name}: {error.strerror or error}") from error

    def _examine(self, path: str) -> tuple[int, bool]:
        """Returns the size of a segment, and whether its first batch is compressed."""
        file = self._filesystem.open(path, read_only=True)
        try:
            data = file.pread(HEADER_SIZE, 0)
            return file.size(), len(data) == HEADER_SIZE and bool(parse_header(data).attributes & CODEC_MASK)
        finally:
            file.close()

    def _read_piece(self, path: str, at: int, length: int, transform: Callable[[bytes, int], bytes]) -> bytes:
        file = self._filesystem.open(path, read_only=True)
        try:
            data = file.pread(length, at)
        finally:
            file.close()
        if len(data) != length:
            raise OSError(f"{path} has become shorter")
        return transform(data, at)

    # -- reading ---------------------------------------------------------------------------------------------------------

    async def _owner(self, key: str) -> str | None:
        try:
            return (await self._objects.get(key, _MAX_OWNER_BYTES)).decode(errors="replace").strip()
        except RemoteObjectMissing:
            return None

    def _key(self, entry: SegmentEntry, suffix: str) -> str:
        try:
            return object_key(self._settings.key_prefix, entry, suffix, read_custom_metadata(entry.custom))
        except MalformedCustomMetadata as error:
            raise RemoteStoreError(f"{main_key(entry)}: its custom metadata is malformed: {error}") from None

    async def _manifest(self, entry: SegmentEntry) -> _Known:
        known = self._manifests.get(entry.id.uuid)
        if known is not None:
            self._manifests.move_to_end(entry.id.uuid)
            return known
        data = await self._read(entry, MANIFEST, MAX_MANIFEST_BYTES)
        try:
            manifest = read_manifest(data)
        except MalformedManifest as error:
            raise RemoteObjectDamaged(f"{main_key(entry)}: its manifest is malformed: {error}") from None
        if manifest.chunks.original_size != entry.size:
            raise RemoteObjectDamaged(f"{main_key(entry)} has {manifest.chunks.original_size} bytes, and its entry says {entry.size}")
        cipher = await self._in_thread(partial(self._unseal, entry, manifest))
        self._forget(entry)  # another call may have read it meanwhile
        known = self._manifests[entry.id.uuid] = _Known(manifest, cipher)
        self._chunks += len(manifest.chunks.sizes)
        while len(self._manifests) > MOST_MANIFESTS or (self._chunks > MOST_CHUNKS and len(self._manifests) > 1):
            self._chunks -= len(self._manifests.popitem(last=False)[1].manifest.chunks.sizes)
        return known

    def _forget(self, entry: SegmentEntry) -> None:
        known = self._manifests.pop(entry.id.uuid, None)
        if known is not None:
            self._chunks -= len(known.manifest.chunks.sizes)

    def _unseal(self, entry: SegmentEntry, manifest: Manifest) -> CopyCipher | None:
        if manifest.encryption is None:
            return None
        try:
            if self._key_ring is None:
                raise RemoteStoreError(f"it is encrypted with the key {manifest.encryption.key_id}, and encryption.key.pairs is not set")
            return self._key_ring.unseal(manifest.encryption)
        except RemoteStoreError as error:
            raise RemoteStoreError(f"{main_key(entry)}: {error}") from None

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
        _look_at_exception(task)


def _look_at_exception(task: asyncio.Future[Any]) -> None:
    """Looks at the exception, which asyncio would log if all readers had left."""
    if not task.cancelled():
        task.exception()


def _transformed(is_compressed: bool, cipher: CopyCipher | None, chunk: bytes, at: int) -> bytes:
    """Compresses the chunk at position `at` of a segment, or encrypts it, or both, or neither. Blocks."""
    if is_compressed:
        import zstandard  # most brokers do not need it

        chunk = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(chunk)
    return chunk if cipher is None else cipher.encrypt(chunk, b"log %d" % at)


def _original(data: memoryview, sizes: Sequence[int], manifest: Manifest, total: int, cipher: CopyCipher | None) -> bytes:
    """Takes consecutive chunks apart, which have `total` bytes before they are transformed. Blocks. Raises OSError for others."""
    chunk_bytes = manifest.chunks.original_chunk_size
    parts: list[bytes | memoryview] = []
    at = 0
    for size in sizes:
        chunk: bytes | memoryview = data[at : at + size]
        at += size
        if cipher is not None:
            chunk = cipher.decrypt(chunk)
        parts.append(_decompressed(chunk, chunk_bytes) if manifest.is_compressed else chunk)
    plain = b"".join(parts)
    if len(plain) != total:
        raise OSError(f"chunks have {len(plain)} bytes, and their manifest says {total}")
    return plain


def _decompressed(frame: bytes | memoryview, most: int) -> bytes:
    import zstandard  # most brokers do not need it

    try:
        if zstandard.frame_content_size(frame) > most:
            raise OSError("a chunk is larger than its manifest says")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=most)
    except zstandard.ZstdError as error:
        raise OSError(f"a chunk is no zstd frame: {error}") from None


def _check_size(entry: SegmentEntry, suffix: str, size: int, most: int) -> None:
    """Raises RemoteStoreError for an object that would not be read: the segment stays on its broker."""
    if size > most:
        raise RemoteStoreError(f"{main_key(entry)}.{suffix} would have {size} bytes, more than the {most} that are read")
