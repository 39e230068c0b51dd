"""Looking things up in old segments without waiting for the disk.

A search in an index or in batch headers is a handful of small reads on the event loop. In the segment that is appended to they are in the
page cache; in one of last month they may each wait for the disk, and with them everybody else. So who reads for a client asks with
`may_wait=False`: what is not in the page cache then ends the search with `NotCached`, and `PartitionLog` raises `ColdRead`, whose `warm`
a thread runs before the same is asked for again. Each round gets further, as long as the page cache keeps what was read.
"""

from typing import TYPE_CHECKING

from storage.disk.filesystem import File, FileSystem
from storage.disk.topic_partition import TopicPartition

if TYPE_CHECKING:
    from storage.segment.segment import Segment

_WARM_BYTES = 128 * 1024
"""What the kernel would read ahead, too: the next header of a sequential search is in it."""


class NotCached(Exception):
    """`length` bytes at `position` of the file are not in the page cache."""

    def __init__(self, filesystem: FileSystem, path: str, position: int, length: int) -> None:
        super().__init__(path, position, length)
        self._filesystem = filesystem
        self.path = path
        self.position = position
        self.length = length

    def warm(self) -> None:
        """Pulls them in. Blocks; for any thread. What cannot be read fails again where somebody can be told."""
        try:
            file = self._filesystem.open(self.path, read_only=True)
            try:
                for position in range(self.position, self.position + self.length, _WARM_BYTES):
                    file.pread(_WARM_BYTES, position)
            finally:
                file.close()
        except OSError:
            pass


class ColdRead(Exception):
    """What a read needs is not in the page cache. No error: run `warm` in a thread, then ask again."""

    def __init__(self, topic_partition: TopicPartition, what: NotCached) -> None:
        super().__init__(f"{topic_partition}: {what.path} at byte {what.position} is not in the page cache")
        self.warm = what.warm


class UnwaitingFile:
    """The file of a segment for reading what is cached. Its `pread` raises NotCached instead of waiting."""

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
    """For lookups in a segment that is only read. Raises NotCached when its offset index is not at hand."""
    segment.offset_index.check_cached()
    return UnwaitingFile(segment.file, segment.filesystem)


def check_time_cached(segment: "Segment") -> None:
    """Raises NotCached when the segment's indexes would have to be read to tell its largest timestamp, or to search by time."""
    if segment.knows_max_timestamp:
        segment.time_index.check_cached()
        return
    # Not even opened: opening reads the last entries.
    for path in segment.paths[:3]:
        if not segment.filesystem.exists(path):
            continue
        file = segment.filesystem.open(path, read_only=True)
        try:
            size = file.size()
            length = size if path != segment.path else min(size, 1)  # of the log only the first batch's header is looked at
            if length and not file.is_cached(length, 0):
                raise NotCached(segment.filesystem, path, 0, length)
        finally:
            file.close()
