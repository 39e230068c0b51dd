"""Checks that the indexes of a copy are those that its writer had.

The layouts of remote stores have no checksums for indexes, so a changed bit in one of them gives wrong answers by time, or of aborted
transactions. Ottla therefore writes the CRC-32C of each index into the custom metadata of its entries, as a field that other readers skip.
Entries of other writers have none: of their indexes order and bounds are checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
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


_PIECE_BYTES: Final = 2500 * 8 * 3 * 17
"""Bytes of an index that are read from a file at once, a megabyte. They are whole entries of every kind."""


def index_checksums(filesystem: FileSystem, files: SegmentFiles) -> bytes:
    """Returns the checksums of all parts of a copy but its records, in the order of IndexKind. Blocks; raises OSError."""
    paths = {IndexKind.OFFSET: files.offset_index, IndexKind.TIMESTAMP: files.time_index, IndexKind.TRANSACTION: files.transaction_index}
    found = {IndexKind.PRODUCER_SNAPSHOT: crc32c(files.producer_snapshot), IndexKind.LEADER_EPOCH: crc32c(files.leader_epochs)}
    for kind, path in paths.items():
        found[kind] = 0
        for piece in () if path is None else pieces_of(filesystem, path):
            found[kind] = crc32c(piece, found[kind])
    return _CHECKSUMS.pack(*(found[kind] for kind in IndexKind))


def pieces_of(filesystem: FileSystem, path: str) -> Iterator[bytes]:
    """Reads a file with an index piece by piece. Blocks; raises OSError."""
    file = filesystem.open(path, read_only=True)
    try:
        at = 0
        while data := file.pread(_PIECE_BYTES, at):
            yield data
            at += len(data)
    finally:
        file.close()


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
    return check_pieces(entry, kind, (data,))


def check_pieces(entry: SegmentEntry, kind: IndexKind, pieces: Iterable[bytes]) -> bool:
    """Does what `check_index` does, with an index in pieces of whole entries."""
    expected = _checksum(entry, kind)
    if expected is not None:
        found = size = 0
        for piece in pieces:
            found = crc32c(piece, found)
            size += len(piece)
        if found != expected:
            raise CorruptIndex(_name(entry, kind), f"its {size} bytes are not those that were copied: the checksum is wrong")
        return True
    try:
        problem = next(_PROBLEMS[kind](entry, pieces), None) if kind in _PROBLEMS else None
    except _PartOfEntry as error:
        problem = str(error)
    if problem is not None:
        raise CorruptIndex(_name(entry, kind), problem)
    return False


def _entries(form: struct.Struct, pieces: Iterable[bytes]) -> Iterator[tuple[int, ...]]:
    for piece in pieces:
        yield from form.iter_unpack(memoryview(piece)[: len(piece) // form.size * form.size])
        if len(piece) % form.size:
            raise _PartOfEntry(f"{len(piece) % form.size} bytes behind the last entry are no entry of {form.size}")


class _PartOfEntry(Exception):
    """The index ends within an entry."""


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


def _offset_problems(entry: SegmentEntry, pieces: Iterable[bytes]) -> Iterator[str]:
    """Offsets and positions increase within the segment."""
    last = entry.end_offset - entry.start_offset
    offset = position = -1
    for following, next_position in _entries(_OFFSET_ENTRY, pieces):
        if not offset < following <= last or not position < next_position < entry.size:
            yield f"offset {following} at {next_position} follows {offset} at {position}"
        offset, position = following, next_position


def _time_problems(entry: SegmentEntry, pieces: Iterable[bytes]) -> Iterator[str]:
    """Timestamps increase, offsets do not decrease, and the last entry has the largest timestamp of the segment."""
    last = entry.end_offset - entry.start_offset
    timestamp, offset = -1, 0
    for following, next_offset in _entries(_TIME_ENTRY, pieces):
        if not timestamp < following <= entry.max_timestamp_ms or not offset <= next_offset <= last:
            yield f"timestamp {following} at {next_offset} follows {timestamp} at {offset}"
        timestamp, offset = following, next_offset
    if timestamp not in (-1, entry.max_timestamp_ms):
        yield f"its last timestamp is {timestamp}, and that of the segment is {entry.max_timestamp_ms}"


def _transaction_problems(entry: SegmentEntry, pieces: Iterable[bytes]) -> Iterator[str]:
    """Markers are in the segment and their order, and end transactions that began before."""
    previous = entry.start_offset - 1
    for version, producer, first, last, stable in _entries(_TRANSACTION_ENTRY, pieces):
        if version or producer < 0 or not previous < last <= entry.end_offset or not 0 <= first < last or not 0 <= stable <= last + 1:
            yield f"the transaction of producer {producer} from {first} to {last} with the last stable offset {stable} follows {previous}"
        previous = last


_PROBLEMS: Final = {
    IndexKind.OFFSET: _offset_problems,
    IndexKind.TIMESTAMP: _time_problems,
    IndexKind.TRANSACTION: _transaction_problems,
}
