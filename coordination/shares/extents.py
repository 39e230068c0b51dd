"""Reads the offsets of the batches in a region of a log, for a share partition that acquires records from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.coordination.shares.record_states import Extent
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
    """

    __slots__ = ("_aborted", "_region", "read")

    def __init__(self, region: FileRegion, aborted: Sequence[AbortedTransaction] = ()) -> None:
        self._region = region
        self._aborted = aborted
        self.read: list[Read] = []

    def __iter__(self) -> Iterator[Extent]:
        region = self._region
        # Raises nothing for the batches that the log has just found in the region.
        for position, header in batches_from(region.file, region.position, region.position + region.length):
            first, last = header.base_offset, header.last_offset
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
