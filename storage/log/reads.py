"""Holds the results of reads and of searches by time, and their limits."""

from typing import NamedTuple

from ottla.protocol.short_lived import short_lived
from ottla.storage.segment.file_region import FileRegion

MAX_HINTS = 64
MAX_UNKNOWN = 20
"""Segments with unknown largest timestamp that are examined in one turn of the event loop."""


@short_lived
class FetchSlice:
    """Whole batches for one fetch, or none. `next_offset` follows the last batch."""

    __slots__ = ("next_offset", "region")

    def __init__(self, region: FileRegion | None, next_offset: int) -> None:
        self.region = region
        self.next_offset = next_offset


class OffsetAndTimestamp(NamedTuple):
    """Result of a search by timestamp. `leader_epoch` is -1 when the batch has none."""

    offset: int
    timestamp: int
    leader_epoch: int
