"""Looks things up in old segments without waiting for the disk.

A search in an index or in batch headers is a few small reads on the event loop. In the active segment they are in the page cache. In old
segments each of them may wait for the disk, and the whole loop with it. So readers for clients pass `may_wait=False`. If bytes are missing
in the page cache, the search ends with `NotCached`, and `PartitionLog` raises `ColdRead`. A thread runs its `warm`, then the search is
repeated. Every repetition gets further, as long as the page cache keeps the bytes.
"""

from typing import TYPE_CHECKING

from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import File, FileSystem

if TYPE_CHECKING:
    from ottla.storage.segment.segment import Segment

_WARM_BYTES = 128 * 1024
"""Bytes per read of `warm`, as much as the kernel would read ahead. The next header of a sequential search lies within them."""


class NotCached(Exception):
    """`length` bytes at `position` of the file are not in the page cache."""

    def __init__(self, filesystem: FileSystem, path: str, position: int, length: int) -> None:
        super().__init__(path, position, length)
        self._filesystem = filesystem
        self.path = path
        self.position = position
        self.length = length

    def warm(self) -> None:
        """Reads the bytes into the page cache. Blocks; for any thread. Ignores errors: the repeated search reports them."""
        try:
            file = self._filesystem.open(self.path, read_only=True)
            try:
                for position in range(self.position, self.position + self.length, _WARM_BYTES):
                    file.pread(_WARM_BYTES, position)
            finally:
                file.close()
        except OSError:
            pass


class LongWalk(NotCached):
    """A search passes over too many batches or aborted transactions for one turn of the event loop. The repeated search gets further."""

    def warm(self) -> None:
        """Does nothing: the bytes are in the page cache."""


LOOKUP_ERRORS = (NotCached, OSError, RecordFormatError)
"""Errors of searches in segments. `LogFiles.failed_lookup` translates them."""


class ColdRead(Exception):
    """A read needs bytes that are not in the page cache. Not an error: run `warm` in a thread, then repeat the read."""

    def __init__(self, topic_partition: TopicPartition, what: NotCached) -> None:
        super().__init__(f"{topic_partition}: {what.path} at byte {what.position} is not in the page cache")
        self.what = what
        self.warm = what.warm


class UnwaitingFile:
    """Reads the cached part of a segment's file. `pread` raises NotCached instead of waiting."""

    __slots__ = ("_file", "_filesystem")

    def __init__(self, file: File, filesystem: FileSystem) -> None:
        self._file = file
        self._filesystem = filesystem

    def pread(self, length: int, at: int) -> bytes:
        """As `File.pread`."""
        data = self._file.pread_cached(length, at)
        if data is None:
            raise NotCached(self._filesystem, self._file.path, at, length)
        return data


def unwaiting_file(segment: "Segment") -> UnwaitingFile:
    """A file for lookups in a segment that is only read. Raises NotCached when the segment's offset index is not cached."""
    segment.offset_index.check_cached()
    return UnwaitingFile(segment.file, segment.filesystem)


def check_time_cached(segment: "Segment") -> None:
    """Raises NotCached when the largest timestamp or a search by time would need parts of the indexes that are not cached."""
    if segment.knows_max_timestamp:
        segment.time_index.check_cached()
        return
    # The indexes are not opened, because opening reads their last entries.
    for path in segment.paths[:3]:
        if not segment.filesystem.exists(path):
            continue
        file = segment.filesystem.open(path, read_only=True)
        try:
            size = file.size()
            length = size if path != segment.path else min(size, 1)  # of the log only the first batch's header is needed
            if length and not file.is_cached(length, 0):
                raise NotCached(segment.filesystem, path, 0, length)
        finally:
            file.close()
    segment.check_indexes(may_wait=False)


def check_beginning_cached(segment: "Segment") -> None:
    """Raises NotCached when the header of the first batch is not cached."""
    file = segment.filesystem.open(segment.path, read_only=True)
    try:
        if file.size() and not file.is_cached(1, 0):
            raise NotCached(segment.filesystem, segment.path, 0, 1)
    finally:
        file.close()
