"""Copies the indexes of a segment to their object, and from there to files, a piece at a time: they may have hundreds of megabytes.

`object_store` owns the manifest, which says where each index begins, and the cipher of the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.broker.remote.encryption import NONCE_BYTES, OVERHEAD_BYTES, TAG_BYTES, CopyCipher, PartDecryption
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.remote.manifest import NAME_OF, Ranges
from ottla.storage.remote.ports import IndexKind, SegmentFiles

PIECE_BYTES: Final = 4 << 20
"""Bytes of the object that are read at a time."""
SAVE_BYTES: Final = 8 * 1024 * 1024
"""Memory that saving indexes takes: a piece, and the same decrypted."""
_FILE_BYTES: Final = 1 << 20


class IndexParts:
    """The indexes that a copy has, as they are written. `size` is that of the object. Made in a thread, which may raise OSError."""

    __slots__ = ("_cipher", "_files", "_filesystem", "_paths", "ranges", "size")

    def __init__(self, filesystem: FileSystem, files: SegmentFiles, cipher: CopyCipher | None) -> None:
        self._filesystem = filesystem
        self._cipher = cipher
        self._files = files
        self._paths = {IndexKind.OFFSET: files.offset_index, IndexKind.TIMESTAMP: files.time_index}
        if files.transaction_index is not None:
            self._paths[IndexKind.TRANSACTION] = files.transaction_index
        sizes = {kind: filesystem.size(path) for kind, path in self._paths.items()}
        sizes |= {IndexKind.PRODUCER_SNAPSHOT: len(files.producer_snapshot), IndexKind.LEADER_EPOCH: len(files.leader_epochs)}
        ranges: dict[IndexKind, tuple[int, int]] = {}
        at = 0
        for kind in NAME_OF:
            if kind in sizes:
                size = sizes[kind] + (OVERHEAD_BYTES if cipher is not None and sizes[kind] else 0)
                ranges[kind] = at, size
                at += size
        self.ranges: Ranges = ranges
        self.size = at

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the object. Blocks; raises OSError, also if a file has changed."""
        for kind, (_, size) in self.ranges.items():
            plain = self._plain(kind)
            if self._cipher is not None and size:
                plain = self._cipher.encrypt_pieces(plain, b"index %d" % kind)
            left = size
            for piece in plain:
                left -= len(piece)
                if left < 0:
                    break
                yield piece
            if left:
                raise OSError(f"the {NAME_OF[kind]} index of a segment to copy has changed")

    def _plain(self, kind: IndexKind) -> Iterable[bytes]:
        path = self._paths.get(kind)
        if path is None:
            yield self._files.producer_snapshot if kind is IndexKind.PRODUCER_SNAPSHOT else self._files.leader_epochs
            return
        file = self._filesystem.open(path, read_only=True)
        try:
            at = 0
            while data := file.pread(_FILE_BYTES, at):
                yield data
                at += len(data)
        finally:
            file.close()


class IndexFiles:
    """The files of the indexes that are wanted, which `write` gets the bytes of the object for, from the first one on.

    Its methods block. They raise OSError if the disk refuses a file, and IndexChanged if an index cannot be decrypted.
    """

    def __init__(self, filesystem: FileSystem, paths: Mapping[IndexKind, str], ranges: Ranges, cipher: CopyCipher | None) -> None:
        self._parts = [
            _Part(filesystem, paths[kind], *ranges.get(kind, (0, 0)), cipher if kind in ranges and ranges[kind][1] else None)
            for kind in paths
        ]

    def write(self, data: memoryview, at: int) -> None:
        """Writes what is wanted of the bytes at this position."""
        for part in self._parts:
            part.write(data, at)

    def finish(self) -> None:
        """Makes the files of empty indexes, and checks the others."""
        for part in self._parts:
            part.finish()


class IndexChanged(Exception):
    """An encrypted index is not that of its copy."""


class _Part:
    """One index on its way from the object to a file."""

    def __init__(self, filesystem: FileSystem, path: str, start: int, size: int, cipher: CopyCipher | None) -> None:
        self._filesystem = filesystem
        self._path = path
        self._start = start
        self._size = size
        self._cipher = cipher
        self._decryption: PartDecryption | None = None
        self._head = b""
        """The nonce, as far as it has come."""
        self._tag = b""
        self._at = 0
        """Bytes of the file."""
        if cipher is not None and size < OVERHEAD_BYTES:
            raise IndexChanged(f"{size} bytes are no encrypted part")

    def write(self, data: memoryview, at: int) -> None:
        first, last = max(self._start - at, 0), min(self._start + self._size - at, len(data))
        if first >= last:
            return
        part: memoryview | bytes = data[first:last]
        if self._cipher is not None:
            part = self._decrypted(self._cipher, data[first:last], at + first - self._start)
        self._save(part)

    def finish(self) -> None:
        if self._decryption is not None:
            try:
                self._decryption.finish(self._tag)
            except OSError as error:
                raise IndexChanged(str(error)) from None
        if not self._at:
            self._save(b"")

    def _decrypted(self, cipher: CopyCipher, data: memoryview, at: int) -> bytes:
        head = data[: max(0, NONCE_BYTES - at)]
        self._head += head
        end = self._size - TAG_BYTES - at
        body = data[len(head) : max(len(head), end)]
        self._tag += bytes(data[max(len(head), end) :])
        if self._decryption is None:
            if len(self._head) < NONCE_BYTES:
                return b""
            self._decryption = cipher.decryption(self._head)
        return self._decryption.update(body)

    def _save(self, data: bytes | memoryview) -> None:
        file = self._filesystem.open(self._path, create=not self._at)
        try:
            file.pwrite(data, self._at)
        finally:
            file.close()
        self._at += len(data)
