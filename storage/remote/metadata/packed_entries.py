"""Packs the entry of a segment into few bytes: a broker holds the entries of all segments of its partitions.

A packed entry is `HEAD`, and for the few entries that need it a tail: further epochs, custom metadata, or a first epoch that does not begin
at the start offset. The partition and the segment's uuid are not in it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition

HEAD: Final = Struct(">qqqqiibi")
"""Start offset, end offset, largest timestamp, time of the event, broker, size, state, first epoch."""
_OFFSETS: Final = Struct(">qq")
_FIRST: Final = Struct(">q33xi")
"""Start offset and first epoch of HEAD."""
_CHANGED: Final = Struct(">24sqi4sB4s")
"""The same bytes as HEAD, of which an update changes the time of the event, the broker and the state."""
_EVENT_AT: Final = 24
_SIZE_AT: Final = 36
STATE_AT: Final = 40
_EPOCH_AT: Final = 41
_OFFSET: Final = Struct(">q")
_TAIL: Final = Struct(">BI")
"""Flags, and the number of further epochs. The first offset, the further epochs and the custom metadata follow."""
_HAS_CUSTOM: Final = 1
_HAS_FIRST_OFFSET: Final = 2
_FURTHER: Final = Struct(">iq")
_CUSTOM_ONLY: Final = _TAIL.pack(_HAS_CUSTOM, 0)
_CUSTOM_AT: Final = HEAD.size + _TAIL.size
_PLAIN: Final = frozenset((b"", _CUSTOM_ONLY))
"""The tails of entries with one epoch that begins at the start offset, but for the custom metadata. Nearly all entries have one of them."""


def pack_tail(start_offset: int, epochs: list[tuple[int, int]], custom: bytes | None) -> bytes:
    """Packs what HEAD has no place for; mostly nothing. `epochs` ascend."""
    _, first_offset = epochs[0]
    if len(epochs) == 1 and custom is None and first_offset == start_offset:
        return b""
    flags = (_HAS_CUSTOM if custom is not None else 0) | (_HAS_FIRST_OFFSET if first_offset != start_offset else 0)
    parts = [_TAIL.pack(flags, len(epochs) - 1)]
    if first_offset != start_offset:
        parts.append(_OFFSET.pack(first_offset))
    parts += [_FURTHER.pack(*each) for each in epochs[1:]]
    parts.append(custom or b"")
    return b"".join(parts)


def unpack(partition: TopicIdPartition, key: int, packed: bytes) -> SegmentEntry:
    """Makes the entry of a packed one. `key` is the segment's uuid as a number."""
    start, end, max_timestamp_ms, event_timestamp_ms, broker_id, size, state, _ = HEAD.unpack_from(packed)
    return SegmentEntry(
        SegmentId(partition, key.to_bytes(16, "big")),
        start,
        end,
        broker_id,
        max_timestamp_ms,
        event_timestamp_ms,
        dict(epochs_of(packed)),
        size,
        SegmentState(state),
        custom_of(packed),
    )


def changed(packed: bytes, state: int, broker_id: int, event_timestamp_ms: int, custom: bytes | None) -> bytes:
    """Returns the packed entry after an update, which replaces the custom metadata, too."""
    head = _CHANGED.pack(packed[:_EVENT_AT], event_timestamp_ms, broker_id, packed[_SIZE_AT:STATE_AT], state, packed[_EPOCH_AT : HEAD.size])
    if packed[HEAD.size : _CUSTOM_AT] in _PLAIN:
        return head if custom is None else head + _CUSTOM_ONLY + custom
    return head + pack_tail(start_of(packed), epochs_of(packed), custom)


def start_of(packed: bytes) -> int:
    """Returns the start offset."""
    return int(_OFFSET.unpack_from(packed)[0])


def end_of(packed: bytes) -> int:
    """Returns the end offset, which is included."""
    return int(_OFFSETS.unpack_from(packed)[1])


def epochs_of(packed: bytes) -> list[tuple[int, int]]:
    """Returns the epochs in ascending order, with their first offsets."""
    offset, epoch = _FIRST.unpack_from(packed)
    if packed[HEAD.size : _CUSTOM_AT] in _PLAIN:
        return [(epoch, offset)]
    at = HEAD.size
    flags, further = _TAIL.unpack_from(packed, at)
    at += _TAIL.size
    if flags & _HAS_FIRST_OFFSET:
        (offset,) = _OFFSET.unpack_from(packed, at)
        at += _OFFSET.size
    return [(epoch, offset), *_FURTHER.iter_unpack(packed[at : at + further * _FURTHER.size])]


def custom_of(packed: bytes) -> bytes | None:
    """Returns the custom metadata."""
    at = HEAD.size
    if len(packed) == at:
        return None
    flags, further = _TAIL.unpack_from(packed, at)
    if not flags & _HAS_CUSTOM:
        return None
    return packed[at + _TAIL.size + (_OFFSET.size if flags & _HAS_FIRST_OFFSET else 0) + further * _FURTHER.size :]


def offset_in(packed: bytes, epoch: int) -> int:
    """Returns the first offset of an epoch that the segment has."""
    if packed[HEAD.size : _CUSTOM_AT] in _PLAIN:
        return start_of(packed)
    return next(offset for each, offset in epochs_of(packed) if each == epoch)


def end_in(packed: bytes, epochs: Sequence[tuple[int, int]], epoch: int) -> int:
    """Returns the last offset of an epoch in the segment, whose `epochs` these are."""
    if len(epochs) == 1:
        return end_of(packed)
    return next((offset - 1 for each, offset in epochs if each > epoch), end_of(packed))
