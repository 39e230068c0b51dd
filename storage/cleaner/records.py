"""Builds a batch from the records of another that are kept: copied bytes, new header.

Called by `filter` with decompressed bodies. Kept records are copied, not encoded from their fields; only if the base
timestamp of the batch changes do they get new timestamp deltas. The result equals that of Apache Kafka's
MemoryRecords.filterTo: base offset, last offset, producer, sequence and leader epoch are kept. So the batch still shows
the offsets of its records and the sequence of its producer.
"""

from collections.abc import Container

from ottla.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from ottla.protocol.records.builder import encode_varint, encode_varlong, frame_batch
from ottla.protocol.records.compression import compress
from ottla.protocol.records.reader import int64
from ottla.protocol.records.walk import RecordWalk

MAX_INT64 = (1 << 63) - 1
_KNOWN_VARINTS = 1024
_VARINTS = [encode_varint(value) for value in range(_KNOWN_VARINTS)]  # a list lookup takes 0.03 µs, encoding 0.5
_NO_ATTRIBUTES = b"\0"
_KEPT_ATTRIBUTES = CODEC_MASK | TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK


KeptRecord = tuple[int, int, int, int]
"""Position of a kept record in the body of its batch: its start, the byte after its timestamp, its end; and its
timestamp delta.

A plain tuple, because there are many.
"""


def keep(data: bytes, header: BatchHeader, dropped: Container[int]) -> list[KeptRecord]:
    """The records in `data`, the decompressed body, whose offsets are not in `dropped`. Raises InvalidRecord if they
    break the format."""
    kept: list[KeptRecord] = []
    walk = RecordWalk(data, header.record_count)
    while walk.advance():
        if header.base_offset + walk.delta not in dropped:
            kept.append((walk.start, walk.delta_at, walk.end, walk.elapsed))
    return kept


def keep_by_position(data: bytes, live: bytearray) -> list[KeptRecord]:
    """The records in `data`, the decompressed body, whose byte in `live` is not 0. Raises InvalidRecord if they break
    the format."""
    kept: list[KeptRecord] = []
    walk = RecordWalk(data, len(live))
    for is_kept in live:
        walk.advance()
        if is_kept:
            kept.append((walk.start, walk.delta_at, walk.end, walk.elapsed))
    return kept


def rewrite(data: bytes, header: BatchHeader, kept: list[KeptRecord], delete_horizon_ms: int | None) -> bytearray:
    """The batch with only these records; at least one. `delete_horizon_ms` is the delete horizon of its tombstones and
    markers, if it has any."""
    attributes = header.attributes & _KEPT_ATTRIBUTES
    if header.attributes & TIMESTAMP_TYPE_MASK:
        max_timestamp = header.max_timestamp
        timestamps = [max_timestamp] * len(kept)
    else:
        timestamps = [header.base_timestamp + delta for _, _, _, delta in kept]
        if max(timestamps) > MAX_INT64 or min(timestamps) < -MAX_INT64:
            timestamps = [int64(timestamp) for timestamp in timestamps]
        max_timestamp = max(NO_TIMESTAMP, *timestamps)
    base_timestamp = timestamps[0]
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
        base_timestamp = delete_horizon_ms
    if base_timestamp == header.base_timestamp and not attributes & TIMESTAMP_TYPE_MASK:
        body = _copied(data, kept)
    else:
        body = _with_timestamps(data, kept, [timestamp - base_timestamp for timestamp in timestamps])
    codec = attributes & CODEC_MASK
    return frame_batch(
        compress(codec, body) if codec else body,
        attributes=attributes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=len(kept),
    )


def _copied(data: bytes, kept: list[KeptRecord]) -> bytearray:
    body = bytearray()
    begin = end = 0
    for start, _, stop, _ in kept:
        if start != end:
            body += data[begin:end]
            begin = start
        end = stop
    body += data[begin:end]
    return body


def _with_timestamps(data: bytes, kept: list[KeptRecord], deltas: list[int]) -> bytearray:
    parts: list[bytes] = []
    known = _VARINTS
    for (_, after_timestamp, end, _), delta in zip(kept, deltas, strict=True):
        timestamp = known[delta] if 0 <= delta < _KNOWN_VARINTS else encode_varlong(delta)
        size = 1 + len(timestamp) + end - after_timestamp
        parts += (known[size] if size < _KNOWN_VARINTS else encode_varint(size), _NO_ATTRIBUTES, timestamp, data[after_timestamp:end])
    return bytearray().join(parts)
