"""Says what reads of a log and searches by time find, and how far they go in one turn."""

from typing import NamedTuple

from storage.segment.file_region import FileRegion

MAX_HINTS = 64
MAX_UNKNOWN = 20
"""Segments whose largest timestamp is not known yet, that one turn of the event loop looks at."""


class FetchSlice:
    """Whole batches for one fetch, or none; `next_offset` follows the last of them."""

    __slots__ = ("next_offset", "region")

    def __init__(self, region: FileRegion | None, next_offset: int) -> None:
        self.region = region
        self.next_offset = next_offset


class OffsetAndTimestamp(NamedTuple):
    """The answer to a search by timestamp. `leader_epoch` is -1 when the batch does not say."""

    offset: int
    timestamp: int
    leader_epoch: int
