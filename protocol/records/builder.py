"""Builds record batches: the bytes that Apache Kafka's MemoryRecordsBuilder would write for the same records.

Called by the coordinators for their internal topics, by the transaction coordinator for markers, by the log cleaner, and by the
recompression on the broker.
"""

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.protocol.records.batch import (
    ATTRIBUTES_OFFSET,
    CONTROL_MASK,
    CRC_OFFSET,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    HEADER_STRUCT,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    TimestampType,
)
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.compression import CompressionCodec, compress
from ottla.protocol.records.errors import InvalidRecord
from ottla.protocol.records.joined import Joined, join
from ottla.protocol.records.reader import Header, Record, RecordOutline, iter_keys_and_values, record_data

_CRC: Final = struct.Struct(">I")
_CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
_END_TXN_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_MARKER_RECORD: Final = struct.Struct(">bbbbbhhbhib")
"""A marker as it stands in the body, where all numbers but the type and the coordinator epoch are the same."""


def build_batch(
    records: Sequence[Record],
    codec: int = CompressionCodec.NONE,
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytearray:
    """One batch with these records, in a writable buffer. There must be at least one record (see `empty_batch`).

    Offsets and timestamps of the records are absolute. `base_offset` (default: the first record's) and `last_offset` (default: the last
    record's) may lie outside the records, as compaction requires. With LOG_APPEND_TIME the header's maximum is `log_append_time` and
    the records keep their own deltas.
    """
    first = records[0]
    base = first.offset if base_offset is None else base_offset
    base_timestamp = first.timestamp if delete_horizon_ms is None else delete_horizon_ms
    data = encode_records(records, base, base_timestamp)
    if timestamp_type:
        max_timestamp = log_append_time
    else:
        max_timestamp = max(NO_TIMESTAMP, *(record.timestamp for record in records))
    attributes = codec
    if timestamp_type:
        attributes |= TIMESTAMP_TYPE_MASK
    if is_transactional:
        attributes |= TRANSACTIONAL_MASK
    if is_control:
        attributes |= CONTROL_MASK
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
    return frame_batch(
        compress(codec, data, level) if codec else data,
        attributes=attributes,
        base_offset=base,
        last_offset=records[-1].offset if last_offset is None else last_offset,
        partition_leader_epoch=partition_leader_epoch,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """A header without records. The cleaner leaves it of a producer's last batch to keep the producer's sequence."""
    attributes = TIMESTAMP_TYPE_MASK if timestamp_type else 0
    if is_transactional:
        attributes |= TRANSACTIONAL_MASK
    if is_control:
        attributes |= CONTROL_MASK
    return frame_batch(
        b"",
        attributes=attributes,
        base_offset=base_offset,
        last_offset=last_offset,
        partition_leader_epoch=partition_leader_epoch,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=0,
    )


def frame_batch(
    body: Buffer,
    *,
    attributes: int,
    base_offset: int,
    last_offset: int,
    partition_leader_epoch: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """Header and checksum around a body that is already encoded (and compressed, if the attributes say so)."""
    framed = Joined(HEADER_SIZE + len(body))
    header = HEADER_STRUCT.pack(
        base_offset,
        HEADER_SIZE + len(body) - LOG_OVERHEAD,
        partition_leader_epoch,
        CURRENT_MAGIC,
        0,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    framed.add(header)
    framed.add(body)
    batch = framed.room
    _CRC.pack_into(batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return batch


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytearray:
    """The records as bytes of a batch body before compression."""
    parts: list[bytes] = []
    known = VARINTS
    last_timestamp: int | None = None
    start = b""
    for offset, timestamp, key, value, headers in records:
        if timestamp != last_timestamp:
            last_timestamp = timestamp
            start = b"\0" + encode_varlong(timestamp - base_timestamp)  # behind the attributes
        delta = offset - base_offset
        delta_bytes = known[delta] if 0 <= delta < _KNOWN_VARINTS else encode_varint(delta)
        key_bytes, value_bytes = key or b"", value or b""
        size = len(key_bytes)
        key_size = _NULL if key is None else known[size] if size < _KNOWN_VARINTS else encode_varint(size)
        size = len(value_bytes)
        value_size = _NULL if value is None else known[size] if size < _KNOWN_VARINTS else encode_varint(size)
        header_bytes = _encode_headers(headers) if headers else b"\0"
        size += len(start) + len(delta_bytes) + len(key_size) + len(key_bytes) + len(value_size) + len(header_bytes)
        parts += (
            known[size] if size < _KNOWN_VARINTS else encode_varint(size),
            start,
            delta_bytes,
            key_size,
            key_bytes,
            value_size,
            value_bytes,
            header_bytes,
        )
    return bytearray().join(parts)


def encode_outlines(records: Iterable[RecordOutline], first_delta: int, base_timestamp: int) -> bytes:
    """The records as bytes of a batch body before compression. Their offsets count from `first_delta`, relative to the base offset."""
    parts: list[Buffer] = []
    for delta, record in enumerate(records, first_delta):
        start = b"\0" + encode_varlong(record.timestamp - base_timestamp) + encode_varint(delta)  # behind the attributes
        parts += (encode_varint(len(start) + len(record.body)), start, record.body)
    return join(parts)


def _encode_headers(headers: Sequence[Header]) -> bytes:
    out = bytearray(encode_varint(len(headers)))
    for key, value in headers:
        _append_bytes(out, key)
        _append_bytes(out, value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a number wrapped to 32 bits."""
    return _base_128((value << 1 ^ value >> 31) & 0xFFFFFFFF)


def encode_varlong(value: int) -> bytes:
    """The zigzag varint of a number wrapped to 64 bits."""
    wrapped = value & 0xFFFFFFFFFFFFFFFF
    return _base_128((wrapped << 1 & 0xFFFFFFFFFFFFFFFF) ^ (0xFFFFFFFFFFFFFFFF if wrapped >> 63 else 0))


def _base_128(raw: int) -> bytes:
    if raw < 0x80:
        return raw.to_bytes(1, "big")
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # zigzag of -1
    else:
        out += encode_varint(len(data))
        out += data


# The varints of 0 to 1,023. Looking one up costs 0.03 µs, encoding one 0.4 µs.
VARINTS = [
    *(bytes((value << 1,)) for value in range(64)),
    *(bytes((value << 1 & 0x7F | 0x80, value >> 6)) for value in range(64, 1024)),
]
_KNOWN_VARINTS = len(VARINTS)
_NULL = encode_varint(-1)


# --- control records


class ControlRecordType(IntEnum):
    """The type in the key of a control record. Only the first two occur in ZooKeeper mode."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


_CONTROL_RECORD_TYPES = {int(kind): kind for kind in ControlRecordType}


class EndTransactionMarker(NamedTuple):
    """The record with which a transaction coordinator ends a transaction in one of its partitions."""

    type: ControlRecordType
    coordinator_epoch: int


def control_record_type(key: bytes | None) -> ControlRecordType:
    """The type of a control record; UNKNOWN for an unknown type.

    Raises InvalidRecord if the key is too short or its version is negative.
    """
    if key is None or len(key) < _CONTROL_KEY.size:
        raise InvalidRecord(
            f"Invalid control record key: {0 if key is None else len(key)} bytes where at least {_CONTROL_KEY.size} are needed"
        )
    version, type_id = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"Invalid version found for control record: {version}. May indicate data corruption")
    return _CONTROL_RECORD_TYPES.get(type_id, ControlRecordType.UNKNOWN)


def parse_end_transaction_marker(record: Record) -> EndTransactionMarker:
    """The marker in a control record. Raises InvalidRecord if the record is another one or is malformed."""
    marker = end_transaction_marker(record.key, record.value)
    if marker is None:
        kind = control_record_type(record.key)
        raise InvalidRecord(f"Control record of type {kind.name} at offset {record.offset} is no end transaction marker")
    return marker


def end_transaction_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker | None:
    """The marker with this key and value; None for a control record of another type. Raises InvalidRecord if it is malformed."""
    kind = control_record_type(key)
    if kind is not ControlRecordType.COMMIT and kind is not ControlRecordType.ABORT:
        return None
    if value is None or len(value) < _END_TXN_VALUE.size:
        found = 0 if value is None else len(value)
        raise InvalidRecord(f"Invalid end transaction marker: {found} bytes of value where at least {_END_TXN_VALUE.size} are needed")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"Invalid version found for end transaction marker: {version}. May indicate data corruption")
    return EndTransactionMarker(kind, coordinator_epoch)


def read_marker(records: Buffer, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in a control batch. None when it has no record, as the cleaner may leave it, or a record of another kind.

    Raises RecordFormatError.
    """
    for key, value in iter_keys_and_values(record_data(records, position, header), header):
        return end_transaction_marker(key, value)
    return None


def read_control_type(records: Buffer, position: int, header: BatchHeader) -> ControlRecordType | None:
    """The type of the record in a control batch; None when it has no record, as the cleaner may leave it. Raises RecordFormatError."""
    for key, _ in iter_keys_and_values(record_data(records, position, header), header):
        return control_record_type(key)
    return None


def build_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction."""
    size = _MARKER_RECORD.size - 1  # the length, which comes first, does not count itself
    body = _MARKER_RECORD.pack(
        size << 1, 0, 0, 0, _CONTROL_KEY.size << 1, 0, marker.type, _END_TXN_VALUE.size << 1, 0, marker.coordinator_epoch, 0
    )  # fmt: skip
    return frame_batch(
        body,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        base_offset=base_offset,
        last_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        base_timestamp=timestamp,
        max_timestamp=max(NO_TIMESTAMP, timestamp),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
