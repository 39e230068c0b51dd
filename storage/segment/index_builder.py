"""Makes the offset index and the time index of a segment from its batches, as a broker does when it recovers a log.

A rebuild of damaged indexes uses it, and the check of a copy in a remote store. A batch takes a microsecond, a large segment seconds. So
`IndexRebuild` is mostly the work of a thread, while the event loop serves other segments. The loop then replaces the files.
"""

import struct
from collections.abc import Callable
from threading import Lock
from typing import Final

from ottla.protocol.records.batch import NO_TIMESTAMP, BatchHeader
from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.disk.yielding import PacedYield
from ottla.storage.errors import CorruptIndex
from ottla.storage.segment.batch_scan import batches_from
from ottla.storage.segment.cold_lookups import NotCached

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
ENTRIES_BYTES: Final = _OFFSET_ENTRY.size + _TIME_ENTRY.size
"""Bytes of one entry of each index."""


class IndexBuilder:
    """Makes the entries of both indexes. Takes the batches in order, then `finish`."""

    __slots__ = (
        "_base_offset",
        "_interval_bytes",
        "_last_entry",
        "_last_in_index",
        "_last_offset",
        "_path",
        "largest",
        "offset_index",
        "time_index",
    )

    def __init__(self, path: str, base_offset: int, interval_bytes: int) -> None:
        self._path = path
        self._base_offset = self._last_offset = base_offset
        self._interval_bytes = interval_bytes
        self._last_entry = 0
        self.largest = self._last_in_index = (NO_TIMESTAMP, base_offset)
        """The largest timestamp, and the last offset of its batch."""
        self.offset_index = bytearray()
        self.time_index = bytearray()

    def add(self, position: int, header: BatchHeader) -> None:
        """Takes the next batch in. Raises CorruptIndex if its offset is out of order."""
        if header.max_timestamp > self.largest[0]:
            self.largest = header.max_timestamp, header.last_offset
        if position - self._last_entry > self._interval_bytes:
            if header.last_offset <= self._last_offset:
                raise CorruptIndex(self._path, f"offset {header.last_offset} follows {self._last_offset}")
            self.offset_index += _OFFSET_ENTRY.pack(header.last_offset - self._base_offset, position)
            self._add_time()
            self._last_entry = position
            self._last_offset = header.last_offset

    def finish(self) -> None:
        """Adds the largest timestamp of the segment."""
        self._add_time()

    def _add_time(self) -> None:
        timestamp, offset = self.largest
        if timestamp > self._last_in_index[0]:
            self.time_index += _TIME_ENTRY.pack(timestamp, offset - self._base_offset)
            self._last_in_index = self.largest


class IndexRebuild:
    """The indexes that the first `size` bytes of a segment's file prove."""

    __slots__ = ("_file", "_lock", "builder", "error", "is_complete", "size")

    def __init__(self, file: File, size: int, builder: IndexBuilder) -> None:
        self._file = file
        self._lock = Lock()
        self.size = size
        self.builder = builder
        self.error: OSError | RecordFormatError | CorruptIndex | None = None
        """The reason why there are entries only for the batches before."""
        self.is_complete = False

    def run(self, maybe_yield: Callable[[], None]) -> None:
        """Reads all batch headers, unless another thread has done so. Blocks."""
        with self._lock:
            if self.is_complete:
                return
            try:
                for position, header in batches_from(self._file, 0, self.size):
                    self.builder.add(position, header)
                    maybe_yield()
            except (OSError, RecordFormatError, CorruptIndex) as error:
                self.error = error
            self.builder.finish()
            self.is_complete = True


class DamagedIndexes(NotCached):
    """The indexes of a segment have to be rebuilt, which takes too long for the event loop. The repeated search replaces them."""

    def __init__(self, filesystem: FileSystem, path: str, rebuild: IndexRebuild) -> None:
        super().__init__(filesystem, path, 0, rebuild.size)
        self._rebuild = rebuild

    def warm(self) -> None:
        """Reads all batch headers."""
        self._rebuild.run(PacedYield())
