"""Reads the offsets of the batches in a region of a log, for a share partition that acquires records from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.coordination.shares.record_states import Extent
from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.segment.batch_scan import batches_from
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.segment.transaction_index import AbortedTransaction


class Read(NamedTuple):
    """A batch and its place in the file."""

    extent: Extent
    position: int
    end: int


class Extents:
    """Iterates over the batches of a region, and remembers those that were taken. Only headers are read, a page at a time.

    `aborted` are the aborted transactions of the region for a group that reads committed records.

    The log has found the beginning and the end of the region, but not read each header. At a batch that cannot be read the region ends:
    after an error in the middle, records would be acquired that no member gets.
    """

    __slots__ = ("_aborted", "_region", "failed", "read")

    def __init__(self, region: FileRegion, aborted: Sequence[AbortedTransaction] = ()) -> None:
        self._region = region
        self._aborted = aborted
        self.failed: OSError | RecordFormatError | None = None
        """The error of the batch behind the last one in `read`."""
        self.read: list[Read] = []

    def __iter__(self) -> Iterator[Extent]:
        batches = batches_from(self._region.file, self._region.position, self._region.position + self._region.length)
        last = -1
        while True:
            try:
                position, header = next(batches)
            except StopIteration:
                return
            except (OSError, RecordFormatError) as error:
                self.failed = error
                return
            # The header of a compressed message of format 0 or 1 has only its last offset; what is behind the batch before may be in it.
            first = last + 1 if header.is_message and header.compression_codec else header.base_offset
            last = header.last_offset
            is_data = not header.is_control and not (
                header.is_transactional
                and any(each.producer_id == header.producer_id and each.first_offset <= first <= each.last_offset for each in self._aborted)
            )
            extent = Extent(first, last, is_data)
            self.read.append(Read(extent, position, position + header.size))
            yield extent

    def region(self, first: int, last: int) -> FileRegion:
        """The batches with these offsets, which were read."""
        begin = next(each.position for each in self.read if each.extent.last >= first)
        end = next(each.end for each in reversed(self.read) if each.extent.first <= last)
        whole = self._region
        # Where the disk refuses what comes from the remote store, it is in memory only.
        held = whole.begun[begin - whole.position : end - whole.position] if whole.begun is not None and whole.holds_all() else None
        return FileRegion(whole.file, begin, end - begin, begun=held)
