"""Represents a region of a log file in a response whose batches are converted to messages of format 0 or 1, while they are sent.

A Fetch of an old consumer makes one for each partition whose log has a later format. The size of the response must be known before the
first byte leaves, and the client needs at least one batch. So a thread converts the first batch before (`begin`), and the size is that of
the region, or of the first batch if that is larger. The rest is converted piece by piece, as the client reads (`next_piece`), and cut off
at the size. If the converted messages are smaller, an incomplete message fills the rest; clients ignore an incomplete last message. Sizes,
pieces and filling are Apache Kafka's (LazyDownConversionRecords).

A switch to a thread and back takes about 60 µs, as much as the conversion of 600 records. So `begin` may convert the next piece, too.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.protocol.conversion.down_converter import DownConverter
from ottla.protocol.conversion.message_reader import MessageReader
from ottla.protocol.conversion.message_sets import down_convert
from ottla.protocol.records.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    LOG_OVERHEAD,
    next_batch_size,
)
from ottla.protocol.records.compression import MAX_DECOMPRESSED_BYTES, CompressionCodec
from ottla.protocol.records.errors import DecompressionTooLarge, RecordFormatError
from ottla.storage.disk.yielding import PacedYield
from ottla.storage.segment.file_region import FileRegion

if TYPE_CHECKING:
    from asyncio import Future

Expand: TypeAlias = "Callable[[Callable[[int], bytearray]], Future[bytearray]]"
"""Has a thread call the function with the bytes to which records may expand, and once more with more after DecompressionTooLarge."""

PIECE_BYTES: Final = 128 * 1024
"""Bytes of batches that are converted at once, unless the first batch is larger."""
_ONE_BATCH: Final = 0
_FILLER: Final = Struct(">qi")


class NotConvertible(Exception):
    """The first batch has zstd, which old clients do not know."""


class ConvertedRegion:
    """See the module. `len` is the number of bytes that are not sent yet.

    `on_converted` is called by `report` with the number of records, nanoseconds, and bytes in memory.
    """

    __slots__ = ("_at", "_begun", "_cost", "_first_offset", "_left", "_magic", "_on_converted", "_region", "expand")

    def __init__(
        self, region: FileRegion, magic: int, first_offset: int, expand: Expand, on_converted: Callable[[int, int, int], None]
    ) -> None:
        """Records below `first_offset` are left out where single messages are possible."""
        self.expand = expand
        """Calls `next_piece` in a thread."""
        self._region = region
        self._magic = magic
        self._first_offset = first_offset
        self._on_converted = on_converted
        self._at = 0
        self._left = 0
        self._begun = bytearray()
        self._cost = (0, 0, 0)

    def __len__(self) -> int:
        return self._left

    def begin(self, between: Callable[[], None], max_bytes: int = MAX_DECOMPRESSED_BYTES, *, takes_piece: bool) -> int:
        """Convert the first batch, set the size, and convert the next piece if that is wanted. Blocks. Returns the bytes of these batches.

        `between` is called between slices of the work. Raises NotConvertible, RecordFormatError, OSError. After DecompressionTooLarge it
        may be called again with a larger `max_bytes`.
        """
        length = self._region.length
        converter = DownConverter(self._magic, min(length, PIECE_BYTES) * 3 // 2)
        size = self._convert_some(converter, _ONE_BATCH, length, between, max_bytes)
        self._left = max(length, size) if size else LOG_OVERHEAD
        if takes_piece and size < self._left:
            with suppress(DecompressionTooLarge):
                size = self._convert_more(converter, self._left, between, max_bytes)
        begun = self._begun = converter.room
        del begun[min(size, self._left) :]
        missing = self._left - len(begun)
        if 0 < missing <= PIECE_BYTES and self._is_over():
            begun += self._filler(missing)
        return self._at

    @property
    def begun_bytes(self) -> int:
        """Number of converted bytes that are in memory until `take_begun`."""
        return len(self._begun)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are converted, and `take_begun` returns them."""
        return len(self._begun) == self._left

    def take_begun(self) -> bytearray:
        """The bytes that `begin` has converted. They count as sent."""
        begun = self._begun
        self._begun = bytearray()
        self._left -= len(begun)
        return begun

    def next_piece(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytearray:
        """Convert the piece after those that are sent. Blocks. Raises OSError, and DecompressionTooLarge if the next batch expands to
        more than a `max_bytes` below the limit of batches. Empty after the last piece."""
        converter = DownConverter(self._magic, min(self._left, PIECE_BYTES) * 3 // 2)
        size = self._convert_more(converter, self._left, PacedYield(), max_bytes)
        piece = converter.room
        del piece[min(size, self._left) :]
        if not piece:
            piece = self._filler(self._left)
        self._left -= len(piece)
        return piece

    def report(self) -> None:
        """Report what was converted since the last report. For the event loop."""
        records, nanoseconds, temporary_bytes = self._cost
        if records:
            self._cost = (0, 0, 0)
            self._on_converted(records, nanoseconds, temporary_bytes)

    def _convert_more(self, converter: DownConverter, most: int, between: Callable[[], None], max_bytes: int) -> int:
        """Convert the next piece, until there are `most` bytes. Returns the bytes that `converter` has then.

        These are no more than before at the end, and where a batch cannot be converted. The client fetches again from there on, and then
        gets the error. As in Apache Kafka, zstd takes the batches of its piece with it.
        """
        size = converter.size
        try:
            return self._convert_some(converter, PIECE_BYTES, most, between, max_bytes)
        except (NotConvertible, RecordFormatError) as error:
            if isinstance(error, DecompressionTooLarge) and max_bytes < MAX_DECOMPRESSED_BYTES:
                raise
            self._at = self._region.length
            return size

    def _convert_some(self, converter: DownConverter, piece_bytes: int, most: int, between: Callable[[], None], max_bytes: int) -> int:
        """Convert the next batches that take `piece_bytes`, or one, until there are `most` bytes of messages. Returns these bytes.

        Batches without messages are passed over. Raises the errors of `begin` if no batch could be converted before.
        """
        began = size = converter.size
        while size == began < most and (frame := self._batches(piece_bytes)):
            self._refuse_zstd(frame)
            size = self._convert(converter, frame, most, between, max_bytes)
        return size

    def _convert(self, converter: DownConverter, frame: memoryview, most: int, between: Callable[[], None], max_bytes: int) -> int:
        """Convert the batches in `frame` up to the first that cannot be. Returns the bytes of all messages up to there."""
        began_ns = perf_counter_ns()
        reader = MessageReader(frame, 0, len(frame))
        at, before = self._at, converter.total
        began = size = converter.size
        records = temporary_bytes = 0
        try:
            while size < most and reader.advance():
                if reader.magic <= self._magic:
                    converter.copy(frame, reader.start, reader.end)
                elif uncompressed := down_convert(
                    converter, frame, reader.start, reader.end, self._first_offset, between, max_bytes=max_bytes
                ):
                    temporary_bytes += reader.end - reader.start + uncompressed
                between()
                self._at = at + reader.end
                size, records = converter.size, converter.total - before
        except RecordFormatError as error:
            if size == began:
                raise
            if not isinstance(error, DecompressionTooLarge) or max_bytes == MAX_DECOMPRESSED_BYTES:
                self._at = self._region.length
        counted, nanoseconds, temporary = self._cost
        self._cost = (counted + records, nanoseconds + perf_counter_ns() - began_ns, temporary + temporary_bytes)
        return size

    def _refuse_zstd(self, frame: memoryview) -> None:
        """Raise NotConvertible if a batch has zstd."""
        reader = MessageReader(frame, 0, len(frame))
        with suppress(RecordFormatError):  # the converter will meet it, too
            while reader.advance():
                if reader.magic == CURRENT_MAGIC:
                    attributes = frame[reader.start + ATTRIBUTES_OFFSET + 1]
                    if attributes & CODEC_MASK == CompressionCodec.ZSTD and not attributes & CONTROL_MASK:
                        raise NotConvertible

    def _batches(self, max_bytes: int) -> memoryview:
        """The next batches that take `max_bytes`, or one; the last may be incomplete. Nothing at the end."""
        size = self._next_size()
        return memoryview(bytearray(self._read(max(size, min(max_bytes, self._region.length - self._at)) if size else 0)))

    def _next_size(self) -> int:
        """Bytes of the next batch; 0 at the end."""
        left = self._region.length - self._at
        return next_batch_size(self._read(min(HEADER_SIZE, left)), 0, left) or 0

    def _read(self, size: int) -> bytes:
        file = self._region.file
        data = file.pread(size, self._region.position + self._at)
        if len(data) < size:
            raise OSError(errno.EIO, "the file is shorter than the log said", file.path)
        return data

    def _is_over(self) -> bool:
        """Whether no batch is left that can be converted."""
        try:
            return not self._next_size()
        except RecordFormatError:
            return True

    def _filler(self, missing: int) -> bytearray:
        """The start of a message that is longer than the missing bytes; a piece of it."""
        filler = bytearray(min(max(missing, LOG_OVERHEAD), PIECE_BYTES))
        _FILLER.pack_into(filler, 0, -1, max(missing + 1, HEADER_SIZE))
        del filler[missing:]
        return filler
