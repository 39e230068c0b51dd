"""Checks that the indexes of a copy are those that its writer had.

The layouts of remote stores have no checksums for indexes, so a changed bit in one of them gives wrong answers by time, or of aborted
transactions. Ottla therefore writes the CRC-32C of each index into the custom metadata of its entries, as a field that other readers skip.
Entries of other writers have none: of their indexes order and bounds are checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from ottla.protocol.records.checksum import crc32c
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.errors import CorruptIndex
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.object_layout import CustomMetadata, MalformedCustomMetadata, custom_metadata, read_custom_metadata
from ottla.storage.remote.ports import IndexKind, SegmentFiles

_CHECKSUMS: Final = struct.Struct(">5I")
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")


def index_checksums(filesystem: FileSystem, files: SegmentFiles) -> bytes:
    """Returns the checksums of all parts of a copy but its records, in the order of IndexKind. Blocks; raises OSError."""
    read = filesystem.read_file
    parts = {
        IndexKind.OFFSET: read(files.offset_index),
        IndexKind.TIMESTAMP: read(files.time_index),
        IndexKind.PRODUCER_SNAPSHOT: files.producer_snapshot,
        IndexKind.TRANSACTION: b"" if files.transaction_index is None else read(files.transaction_index),
        IndexKind.LEADER_EPOCH: files.leader_epochs,
    }
    return checksums_of(parts)


def checksums_of(parts: Mapping[IndexKind, bytes]) -> bytes:
    """Returns the checksums of all parts of a copy but its records, in the order of IndexKind."""
    return _CHECKSUMS.pack(*(crc32c(parts[kind]) for kind in IndexKind))


def with_checksums(custom: bytes | None, checksums: bytes, most: int) -> bytes | None:
    """Adds the checksums to the custom metadata that a store answered, unless they have another form, or more than `most` bytes then."""
    try:
        fields = read_custom_metadata(custom)
    except MalformedCustomMetadata:
        return custom
    if custom_metadata(fields) != custom:
        return custom
    together = custom_metadata(fields._replace(index_checksums=checksums))
    return custom if together is None or len(together) > most else together


def check_index(entry: SegmentEntry, kind: IndexKind, data: bytes) -> bool:
    """Checks one index. Returns whether its checksum proves it; otherwise only its order and bounds fit. Raises CorruptIndex."""
    expected = _checksum(entry, kind)
    if expected is not None:
        if crc32c(data) != expected:
            raise CorruptIndex(_name(entry, kind), f"its {len(data)} bytes are not those that were copied: the checksum is wrong")
        return True
    problem = next(_PROBLEMS[kind](entry, data), None) if kind in _PROBLEMS else None
    if problem is not None:
        raise CorruptIndex(_name(entry, kind), problem)
    return False


def _checksum(entry: SegmentEntry, kind: IndexKind) -> int | None:
    try:
        fields: CustomMetadata = read_custom_metadata(entry.custom)
    except MalformedCustomMetadata:
        return None
    if fields.index_checksums is None or len(fields.index_checksums) != _CHECKSUMS.size:
        return None
    return int(_CHECKSUMS.unpack(fields.index_checksums)[kind])


def _name(entry: SegmentEntry, kind: IndexKind) -> str:
    partition = entry.id.partition
    return f"the {kind.name.lower().replace('_', ' ')} index of {partition.topic}-{partition.partition} at offset {entry.start_offset}"


def _offset_problems(entry: SegmentEntry, data: bytes) -> Iterator[str]:
    """Offsets and positions increase within the segment."""
    if len(data) % _OFFSET_ENTRY.size:
        yield f"{len(data)} bytes are no entries of {_OFFSET_ENTRY.size}"
        return
    last = entry.end_offset - entry.start_offset
    for (offset, position), (following, next_position) in pairwise([(-1, -1), *_OFFSET_ENTRY.iter_unpack(data)]):
        if not offset < following <= last or not position < next_position < entry.size:
            yield f"offset {following} at {next_position} follows {offset} at {position}"


def _time_problems(entry: SegmentEntry, data: bytes) -> Iterator[str]:
    """Timestamps increase, offsets do not decrease, and the last entry has the largest timestamp of the segment."""
    if len(data) % _TIME_ENTRY.size:
        yield f"{len(data)} bytes are no entries of {_TIME_ENTRY.size}"
        return
    last = entry.end_offset - entry.start_offset
    found = [(-1, 0), *_TIME_ENTRY.iter_unpack(data)]
    for (timestamp, offset), (following, next_offset) in pairwise(found):
        if not timestamp < following <= entry.max_timestamp_ms or not offset <= next_offset <= last:
            yield f"timestamp {following} at {next_offset} follows {timestamp} at {offset}"
    if len(found) > 1 and found[-1][0] != entry.max_timestamp_ms:
        yield f"its last timestamp is {found[-1][0]}, and that of the segment is {entry.max_timestamp_ms}"


def _transaction_problems(entry: SegmentEntry, data: bytes) -> Iterator[str]:
    """Markers are in the segment and their order, and end transactions that began before."""
    if len(data) % _TRANSACTION_ENTRY.size:
        yield f"{len(data)} bytes are no entries of {_TRANSACTION_ENTRY.size}"
        return
    previous = entry.start_offset - 1
    for version, producer, first, last, stable in _TRANSACTION_ENTRY.iter_unpack(data):
        if version or producer < 0 or not previous < last <= entry.end_offset or not 0 <= first < last or not 0 <= stable <= last + 1:
            yield f"the transaction of producer {producer} from {first} to {last} with the last stable offset {stable} follows {previous}"
        previous = last


_PROBLEMS: Final = {
    IndexKind.OFFSET: _offset_problems,
    IndexKind.TIMESTAMP: _time_problems,
    IndexKind.TRANSACTION: _transaction_problems,
}
