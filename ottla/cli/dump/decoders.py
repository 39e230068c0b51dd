"""Decodes keys and values of records to text: strings, numbers, and the records of the coordinators' internal topics.

A decoder takes a record and returns the texts of key and value, None for a missing one. Each text is that of
DumpLogSegments' decoder of the same name.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any

from ottla.cli.dump.message_json import compact_json, json_of
from ottla.protocol.messages import consumer_group_records
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.messages.group_metadata import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.messages.offset_commit_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from ottla.protocol.records.reader import Record
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.wire import ProtocolError

Texts = tuple[str | None, str | None]
Decoder = Callable[[Record], Texts]
BytesDecoder = Callable[[bytes], str]

_VERSION = struct.Struct(">h")
_DELETED = "<DELETE>"
_TRANSACTION_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip


class NotDecodable(Exception):
    """A record that the decoder cannot decode."""


def _number(size: int) -> BytesDecoder:
    def decode(data: bytes) -> str:
        if len(data) < size:
            raise NotDecodable(f"{len(data)} bytes are not a number of {size}")
        return str(int.from_bytes(data[:size], "big", signed=True))

    return decode


BYTES_DECODERS: dict[str, BytesDecoder] = {
    "StringDecoder": lambda data: data.decode("utf-8", "replace"),
    "IntegerDecoder": _number(4),
    "LongDecoder": _number(8),
    "DefaultDecoder": bytes.hex,
}
"""Decoders by the names of Apache Kafka's classes. Its DefaultDecoder prints the identity of a Java array; here it
prints hexadecimal digits."""


def plain_decoder(key: BytesDecoder, value: BytesDecoder) -> Decoder:
    """Decodes key and value independently."""
    return lambda record: (None if record.key is None else key(record.key), None if record.value is None else value(record.value))


# --- __consumer_offsets

_OFFSETS_RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (consumer_group_records.ConsumerGroupMetadataKey, consumer_group_records.ConsumerGroupMetadataValue),
    4: (consumer_group_records.ConsumerGroupPartitionMetadataKey, consumer_group_records.ConsumerGroupPartitionMetadataValue),
    5: (consumer_group_records.ConsumerGroupMemberMetadataKey, consumer_group_records.ConsumerGroupMemberMetadataValue),
    6: (
        consumer_group_records.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_group_records.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        consumer_group_records.ConsumerGroupTargetAssignmentMemberKey,
        consumer_group_records.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue,
    ),
}


def offsets_decoder(record: Record) -> Texts:
    """Groups and committed offsets. Raises NotDecodable for a record without a key; other defects are described in the
    text."""
    if record.key is None:
        raise NotDecodable(f"Failed to decode message at offset {record.offset} using offset topic decoder (message had a missing key)")
    part, version = "key", None
    try:
        key_version = version = _version_of(record.key)
        classes = _OFFSETS_RECORDS.get(key_version)
        if classes is None:
            return f"Unknown record type {key_version} at offset {record.offset}, skipping.", None
        key, _ = classes[0].decode(record.key, key_version, _VERSION.size)
        key_text = compact_json({"type": str(key_version), "data": json_of(key, key_version)})
        if record.value is None:
            return key_text, _DELETED
        part, version = "value", None
        version = _version_of(record.value)
        value, _ = classes[1].decode(record.value, version, _VERSION.size)
    except NotDecodable:
        return f"Error at offset {record.offset}, skipping. Could not read version from {part}'s buffer.", None
    except ProtocolError as error:
        reason = f"Could not read record with version {version} from {part}'s buffer due to: {error}."
        return f"Error at offset {record.offset}, skipping. {reason}", None
    data = json_of(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
        for described, member in zip(data["members"], value.members, strict=True):
            _open(described, "subscription", member.subscription, ConsumerProtocolSubscription)
            _open(described, "assignment", member.assignment, ConsumerProtocolAssignment)
    return key_text, compact_json({"version": str(version), "data": data})


def _open(described: dict[str, Any], name: str, data: bytes, kind: type[Message]) -> None:
    """Replace the bytes by their decoded content; leave them if they cannot be decoded."""
    try:
        version = _version_of(data)
        described[name] = json_of(kind.decode(data, version, _VERSION.size)[0], version)
    except (ProtocolError, NotDecodable):
        return


def _version_of(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise NotDecodable(f"{len(data)} bytes hold no version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


# --- __transaction_state


def transaction_log_decoder(record: Record) -> Texts:
    """Transactional ids and the state of their transactions. Raises NotDecodable."""
    if record.key is None:
        raise NotDecodable(f"the record at offset {record.offset} has no key")
    key_version = _version_of(record.key)
    try:
        if not TransactionLogKey.SCHEMA.versions.cover(key_version):
            return f"unknown::version={key_version}", None
        key, _ = TransactionLogKey.decode(record.key, key_version, _VERSION.size)
        key_text = f"transaction_metadata::transactionalId={key.transactional_id}"
        if record.value is None:
            return key_text, _DELETED
        version = _version_of(record.value)
        value, _ = TransactionLogValue.decode(record.value, version, _VERSION.size)
    except ProtocolError as error:
        raise NotDecodable(f"the record at offset {record.offset}: {error}") from None
    status = value.transaction_status
    if not 0 <= status < len(_TRANSACTION_STATES):
        raise NotDecodable(f"the record at offset {record.offset}: unknown transaction state {status}")
    partitions = [(topic.topic, number) for topic in value.transaction_partitions or () for number in topic.partition_ids]
    listed = ",".join(f"{topic}-{number}" for topic, number in _in_java_order(partitions))
    return key_text, (
        f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},state={_TRANSACTION_STATES[status]},partitions=[{listed}],"
        f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},txnTimeoutMs={value.transaction_timeout_ms}"
    )


def _in_java_order(partitions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """In the order of Scala's mutable.HashSet: by slot of its table, whose size is a power of two and at most three
    quarters full, then by hash."""
    unique = set(partitions)
    slots = 16
    while len(unique) >= slots * 3 // 4:
        slots *= 2

    def place(partition: tuple[str, int]) -> tuple[int, int]:
        text = 0
        for unit in partition[0].encode("ascii", "replace"):  # topic names are ASCII
            text = text * 31 + unit & 0xFFFFFFFF
        code = (31 * (31 + partition[1]) + text) & 0xFFFFFFFF
        improved = code ^ code >> 16
        return improved & slots - 1, improved - (1 << 32) if improved >> 31 else improved

    return sorted(unique, key=place)
