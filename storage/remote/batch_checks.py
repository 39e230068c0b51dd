"""Verifies the batches of a copied segment, whether they come by chunks (`chunk_file`) or from the first byte to the last (`record_walk`).

The checksum of a batch covers its records and attributes. Length, offsets and leader epoch are compared with the entry of the copy.
"""

from __future__ import annotations

from ottla.protocol.records.batch import CURRENT_MAGIC, HEADER_SIZE, MAGIC_OFFSET, BatchHeader, parse_header
from ottla.storage.remote.entries import SegmentEntry


class CorruptChunk(Exception):
    """The bytes of a remote segment are not those that were copied."""


def check_header(data: bytes | memoryview, position: int, next_offset: int, entry: SegmentEntry) -> BatchHeader:
    """Reads the header of the batch at `position` of the segment, which `data` begins with. Its offsets are `next_offset` and higher.

    Raises CorruptChunk if no batch of the segment can begin so.
    """
    if len(data) < HEADER_SIZE or data[MAGIC_OFFSET] != CURRENT_MAGIC:
        raise CorruptChunk(f"no batch begins at byte {position}")
    header = parse_header(data)
    if header.size < HEADER_SIZE or position + header.size > entry.size:
        raise CorruptChunk(f"the batch at byte {position} has {header.size} bytes, and the segment has {entry.size}")
    if not next_offset <= header.base_offset <= header.last_offset <= entry.end_offset:
        raise CorruptChunk(f"offsets {header.base_offset} to {header.last_offset} at byte {position}, where {next_offset} is expected")
    if header.partition_leader_epoch not in entry.leader_epochs and not _is_below_epochs(header, entry):
        raise CorruptChunk(f"the batch at byte {position} is of epoch {header.partition_leader_epoch}")
    return header


def _is_below_epochs(header: BatchHeader, entry: SegmentEntry) -> bool:
    """Whether the writer of the entry had forgotten the epoch, because its log began behind the batch."""
    epoch, offset = min(entry.leader_epochs.items())
    return header.base_offset < offset and header.partition_leader_epoch < epoch


def wrong_checksum(position: int) -> CorruptChunk:
    """Returns the error for a batch whose checksum is wrong."""
    return CorruptChunk(f"the checksum of the batch at byte {position} is wrong")
