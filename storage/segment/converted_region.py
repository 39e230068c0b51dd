"""Represents a region of a log file in a response whose batches are converted to messages of format 0 or 1, while they are sent.

A Fetch of an old consumer makes one for each partition. The size of the response must be known before the first byte leaves, and the client
needs at least one batch. So a thread converts the first batch before (`begin`), and the size is that of the region, or of the first batch
if that is larger. The rest is converted piece by piece, as the client reads (`next_piece`), and cut off at the size. If it comes out
smaller, a message that cannot be complete fills the rest; clients ignore an incomplete last message. Sizes and filling are Apache Kafka's
(LazyDownConversionRecords).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from protocol.conversion.message_sets import down_convert, message_at
from protocol.records.batch import CODEC_MASK, CONTROL_MASK, CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD
from protocol.records.compression import CompressionCodec
from protocol.records.errors import RecordFormatError, UnknownCompressionCodec
from storage.disk.yielding import yield_to_loop
from storage.segment.file_region import FileRegion

if TYPE_CHECKING:
    from concurrent.futures import Executor

PIECE_BYTES: Final = 128 * 1024
"""Bytes of batches that are converted at once, unless the first batch is larger."""
_ATTRIBUTES: Final = Struct(">21xh")
_FILLER: Final = Struct(">qi")


class NotConvertible(Exception):
    """The first batch has zstd, which old clients do not know."""


class ConvertedRegion:
    """See the module. `len` is the number of bytes that are not sent yet.

    `on_converted` is called by `report` with the number of records, nanoseconds, and bytes in memory.
    """

    __slots__ = ("_at", "_cost", "_first", "_first_offset", "_left", "_magic", "_on_converted", "_region", "executor")

    def __init__(
        self, region: FileRegion, magic: int, first_offset: int, executor: Executor, on_converted: Callable[[int, int, int], None]
    ) -> None:
        """Records below `first_offset` are left out where single messages are possible."""
        self.executor = executor
        """The threads that convert."""
        self._region = region
        self._magic = magic
        self._first_offset = first_offset
        self._on_converted = on_converted
        self._at = 0
        self._left = 0
        self._first: bytes | None = None
        self._cost = (0, 0, 0)

    def __len__(self) -> int:
        return self._left

    def begin(self) -> None:
        """Convert the first batch and set the size. Blocks. Raises NotConvertible, RecordFormatError, OSError."""
        region = self._region
        while self._first is None and (batch := self._next_batch()) is not None:
            converted = self._convert(batch)
            if converted:
                self._first = converted
        self._left = LOG_OVERHEAD if self._first is None else max(region.length, len(self._first))

    def next_piece(self) -> bytes:
        """Convert the next piece. Blocks. Raises OSError. Empty after the last piece."""
        piece = self._first
        self._first = None
        if piece is None:
            piece = self._convert_some() or self._filler()
        if len(piece) > self._left:
            piece = piece[: self._left]
        self._left -= len(piece)
        return piece

    def report(self) -> None:
        """Report what was converted since the last report. For the event loop."""
        records, nanoseconds, temporary_bytes = self._cost
        if records:
            self._cost = (0, 0, 0)
            self._on_converted(records, nanoseconds, temporary_bytes)

    def _convert_some(self) -> bytes:
        """The messages of the next batches; nothing at the end, and from a batch on that cannot be converted.

        The client asks again from there on, and gets the error then. As in Apache Kafka, zstd takes the batches of its piece with it.
        """
        parts: list[bytes] = []
        taken = 0
        try:
            while (batch := self._next_batch(PIECE_BYTES - taken if parts else 0)) is not None:
                taken += len(batch)
                converted = self._convert(batch)
                if converted:
                    parts.append(converted)
        except NotConvertible:
            self._at = self._region.length
            parts = []
        except RecordFormatError:
            self._at = self._region.length
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next_batch(self, max_bytes: int = 0) -> bytes | None:
        """The next whole batch; None at the end, or if it is larger than a `max_bytes` that is not 0."""
        region = self._region
        position = region.position + self._at
        left = region.length - self._at
        start = self._read(min(HEADER_SIZE, left), position)
        found = message_at(start, 0, left)
        if found is None or 0 < max_bytes < found.size:
            return None
        self._at += found.size
        return start[: found.size] if found.size <= len(start) else self._read(found.size, position)

    def _read(self, size: int, position: int) -> bytes:
        file = self._region.file
        data = file.pread(size, position)
        if len(data) < size:
            raise OSError(errno.EIO, "the file is shorter than the log said", file.path)
        return data

    def _convert(self, batch: bytes) -> bytes:
        found = message_at(batch, 0, len(batch))
        assert found is not None  # it was read as a whole
        if found.magic == CURRENT_MAGIC:
            attributes = _ATTRIBUTES.unpack_from(batch)[0]
            codec = attributes & CODEC_MASK
            if attributes & CONTROL_MASK:
                return b""
            if codec > CompressionCodec.ZSTD:
                raise UnknownCompressionCodec(codec)
            if codec == CompressionCodec.ZSTD:
                raise NotConvertible
        if found.magic <= self._magic:
            return batch
        began_ns = perf_counter_ns()
        done = down_convert(batch, self._magic, self._first_offset, yield_to_loop)
        records, nanoseconds, temporary_bytes = self._cost
        self._cost = (
            records + done.records,
            nanoseconds + perf_counter_ns() - began_ns,
            temporary_bytes + len(batch) + done.uncompressed_bytes,
        )
        return bytes(done.messages)

    def _filler(self) -> bytes:
        """A message that is longer than what remains."""
        size = max(LOG_OVERHEAD, min(self._left + 1, PIECE_BYTES))
        return _FILLER.pack(-1, max(self._left + 1, HEADER_SIZE)).ljust(size, b"\0")
