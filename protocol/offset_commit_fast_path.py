"""OffsetCommit, the common shape, by hand: partitions without metadata, whose entries are then equally long, so that one `unpack` takes
all of a topic's apart.

The broker's OffsetCommit handler tries this first; `protocol.messages.offset_commit` is the authority, and a test holds both equal.
Whatever is not the common shape (metadata, a retention time, tagged fields, names and ids of 127 bytes or more, anything malformed) is
answered with None, and the generated decoder then reads it or raises the right error.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

FIRST_VERSION: Final = 2
LAST_VERSION: Final = 9
MOST_OFFSETS: Final = 1024
"""In one request; more are not common, and a layout is kept for each number of them."""

_FIRST_WITH_THROTTLE_TIME: Final = 3
_FIRST_WITHOUT_RETENTION: Final = 5
_FIRST_WITH_LEADER_EPOCH: Final = 6
_FIRST_WITH_INSTANCE_ID: Final = 7
_FIRST_FLEXIBLE: Final = 8
_ENTRY_SIZE: Final = 18
"""Of a partition: its index, offset and leader epoch; then two bytes for empty metadata (and no tagged fields, where there are any)."""

_ENTRY_SIZE_WITHOUT_EPOCH: Final = 14
_NO_EPOCH: Final = b"\xff\xff\xff\xff"
_LAYOUTS: Final = 64

_int16 = struct.Struct(">h").unpack_from
_int32 = struct.Struct(">i").unpack_from
_int64 = struct.Struct(">q").unpack_from
_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack


class PlainTopic(NamedTuple):
    """Partitions of a topic whose offsets are committed without metadata."""

    topic: str
    name: bytes
    indexes: Sequence[int]
    index_bytes: Sequence[bytes]
    """The same as they stand in requests, records and answers: 4 bytes each."""
    positions: Sequence[bytes]
    """Offset and leader epoch of each, 12 bytes: so they stand in requests and in records."""


class OffsetCommitShape(NamedTuple):
    """What such a request says; at most MOST_OFFSETS."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[PlainTopic]


@lru_cache(_LAYOUTS)
def _with_epoch(count: int) -> struct.Struct:
    return struct.Struct("4s12s2x" * count)


@lru_cache(_LAYOUTS)
def _without_epoch(count: int) -> struct.Struct:
    return struct.Struct("4s8s2x" * count)


def read_offset_commit(frame: memoryview, offset: int, version: int) -> OffsetCommitShape | None:
    """The body at `offset`, or None to read it the general way. Versions 2 to 9."""
    if not FIRST_VERSION <= version <= LAST_VERSION:
        return None
    try:
        return _read_flexible(frame, offset) if version >= _FIRST_FLEXIBLE else _read_old(frame, offset, version)
    except (struct.error, IndexError, UnicodeDecodeError, _Uncommon):
        return None


class _Uncommon(Exception):
    """A string that is null, or longer than common ones."""


def _compact_string(frame: memoryview, p: int) -> tuple[str, int]:
    """The string at `p`, and where it ends. Raises _Uncommon."""
    n = frame[p]  # one more than its bytes
    if not 0 < n < 128:
        raise _Uncommon
    end = p + n
    return str(frame[p + 1 : end], "utf-8"), end


def _string(frame: memoryview, p: int) -> tuple[str, int]:
    """The same where the length takes two bytes."""
    n = _int16(frame, p)[0]
    if not 0 <= n < 127:
        raise _Uncommon
    end = p + 2 + n
    return str(frame[p + 2 : end], "utf-8"), end


def _read_flexible(frame: memoryview, p: int) -> OffsetCommitShape | None:
    group_id, p = _compact_string(frame, p)
    generation_id = _int32(frame, p)[0]
    member_id, p = _compact_string(frame, p + 4)
    group_instance_id = None
    if frame[p]:
        group_instance_id, p = _compact_string(frame, p)
    else:
        p += 1
    count = frame[p]
    if not 0 < count < 128:
        return None
    p += 1
    topics = []
    left = MOST_OFFSETS
    for _ in range(count - 1):
        name, p = _compact_string(frame, p)
        n = frame[p]
        p += 1
        if n > 127:
            byte = frame[p]
            if byte > 127:
                return None
            n += (byte << 7) - 128
            p += 1
        n -= 1
        left -= n
        if n < 1 or left < 0:
            return None
        q = p + n * _ENTRY_SIZE
        entries = bytes(frame[p:q])
        if entries[16::_ENTRY_SIZE].strip(b"\0\1") or entries[17::_ENTRY_SIZE].strip(b"\0") or frame[q]:
            return None  # metadata, or tagged fields
        p = q + 1
        fields = _with_epoch(n).unpack(entries)
        topics.append(_plain_topic(name, fields[::2], fields[1::2]))
    if frame[p] or p + 1 != len(frame):
        return None
    return OffsetCommitShape(group_id, generation_id, member_id, group_instance_id, topics)


def _read_old(frame: memoryview, p: int, version: int) -> OffsetCommitShape | None:
    end = len(frame)
    group_id, p = _string(frame, p)
    generation_id = _int32(frame, p)[0]
    member_id, p = _string(frame, p + 4)
    group_instance_id = None
    if version >= _FIRST_WITH_INSTANCE_ID:
        if _int16(frame, p)[0] < 0:
            p += 2
        else:
            group_instance_id, p = _string(frame, p)
    elif version < _FIRST_WITHOUT_RETENTION:
        if _int64(frame, p)[0] != -1:
            return None
        p += 8
    count = _int32(frame, p)[0]
    p += 4
    if not 0 <= count < end:
        return None
    size = _ENTRY_SIZE if version >= _FIRST_WITH_LEADER_EPOCH else _ENTRY_SIZE_WITHOUT_EPOCH
    topics = []
    left = MOST_OFFSETS
    for _ in range(count):
        name, p = _string(frame, p)
        n = _int32(frame, p)[0]
        p += 4
        left -= n
        if n < 1 or left < 0:
            return None
        q = p + n * size
        entries = bytes(frame[p:q])
        # The length of the metadata: 0, or -1 for null.
        first = entries[size - 2 :: size]
        if first.strip(b"\0\xff") or first != entries[size - 1 :: size]:
            return None
        p = q
        if size == _ENTRY_SIZE:
            fields = _with_epoch(n).unpack(entries)
            positions: Sequence[bytes] = fields[1::2]
        else:
            fields = _without_epoch(n).unpack(entries)
            positions = [offset + _NO_EPOCH for offset in fields[1::2]]
        topics.append(_plain_topic(name, fields[::2], positions))
    if p != end:
        return None
    return OffsetCommitShape(group_id, generation_id, member_id, group_instance_id, topics)


def _plain_topic(topic: str, index_bytes: Sequence[bytes], positions: Sequence[bytes]) -> PlainTopic:
    indexes = struct.unpack(f">{len(index_bytes)}i", b"".join(index_bytes))
    return PlainTopic(topic, topic.encode(), indexes, index_bytes, positions)


def encode_offset_commit_response(version: int, correlation_id: int, topics: Sequence[PlainTopic], error_code: int) -> bytes:
    """Response header and OffsetCommitResponse with the same error for every partition."""
    flexible = version >= _FIRST_FLEXIBLE
    count = len(topics)
    parts = [_pack_int32(correlation_id)]
    if flexible:
        parts.append(bytes((0, 0, 0, 0, 0, count + 1)))  # no tagged fields of the header; throttle time
    elif version >= _FIRST_WITH_THROTTLE_TIME:
        parts += (b"\0\0\0\0", _pack_int32(count))
    else:
        parts.append(_pack_int32(count))
    code = _pack_int16(error_code) + b"\0" if flexible else _pack_int16(error_code)
    for _, name, indexes, index_bytes, _ in topics:
        n = len(indexes)
        if flexible:
            parts += (bytes((len(name) + 1,)), name, _compact_count(n), code.join(index_bytes), code, b"\0")
        else:
            parts += (_pack_int16(len(name)), name, _pack_int32(n), code.join(index_bytes), code)
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)


def _compact_count(count: int) -> bytes:
    count += 1
    return bytes((count,)) if count < 128 else bytes((count & 0x7F | 0x80, count >> 7))
