"""Decodes the entries of a segment's index files from their bytes, without validating them.

The storage floor's index classes trust a file or reject it; a tool that looks for defects must see every entry.
"""

import struct
from pathlib import Path
from typing import NamedTuple

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TRANSACTION_ENTRY = struct.Struct(">bxqqqq")  # Apache Kafka writes the version as two bytes and reads the first


class IndexEntry(NamedTuple):
    """An entry of an offset index, offset absolute."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """An entry of a time index, offset absolute."""

    timestamp: int
    offset: int


def base_offset_of(path: Path) -> int:
    """The offset in a file's name. Raises ValueError if there is none."""
    return int(path.name.partition(".")[0])


def beside(path: Path, suffix: str) -> Path:
    """The file of the same segment with another suffix."""
    return path.with_name(path.name.partition(".")[0] + suffix)


def offset_entries(data: bytes, base_offset: int) -> list[IndexEntry]:
    """All entries, preallocated zeros included; bytes after the last complete entry are ignored."""
    whole = data[: len(data) // _OFFSET_ENTRY.size * _OFFSET_ENTRY.size]
    return [IndexEntry(base_offset + relative, position) for relative, position in _OFFSET_ENTRY.iter_unpack(whole)]


def time_entries(data: bytes, base_offset: int) -> list[TimeEntry]:
    """All entries, preallocated zeros included."""
    whole = data[: len(data) // _TIME_ENTRY.size * _TIME_ENTRY.size]
    return [TimeEntry(timestamp, base_offset + relative) for timestamp, relative in _TIME_ENTRY.iter_unpack(whole)]


def transaction_entries(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """(version, producer id, first offset, last offset, last stable offset) of all aborted transactions."""
    return list(_TRANSACTION_ENTRY.iter_unpack(data[: len(data) // _TRANSACTION_ENTRY.size * _TRANSACTION_ENTRY.size]))


def used_offset_entries(data: bytes, base_offset: int) -> list[IndexEntry]:
    """The entries before the preallocated zeros. No real entry has position 0, because the first batch never gets one."""
    entries = offset_entries(data.rstrip(b"\0") + bytes(_OFFSET_ENTRY.size), base_offset)
    return [entry for entry in entries if entry.position or entry.offset != base_offset]


def used_time_entries(data: bytes, base_offset: int) -> list[TimeEntry]:
    """The entries before the preallocated zeros."""
    used = len(data.rstrip(b"\0"))
    count = -(-used // _TIME_ENTRY.size)
    return time_entries(data[: count * _TIME_ENTRY.size], base_offset)
