"""Encodes and decodes the records of `__transaction_state` as Apache Kafka does.

The key is the transactional id. The value has no partitions (null) in the state Empty. Values have version 0 until the feature
`transaction.version` is finalised, as with Apache Kafka 3.9 in ZooKeeper mode, and version 1 from then on. Version 1 adds tagged fields:
the previous and the next producer id, and the version of the client. Both versions are read, here and by Apache Kafka 3.9. The last
producer epoch is not stored.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from ottla.coordination.transactions.metadata import TransactionMetadata, TransactionState, TransitMetadata
from ottla.coordination.transactions.partitions import NO_PARTITIONS, of_pairs
from ottla.pauses import pause
from ottla.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from ottla.protocol.records.batch import NO_PRODUCER_ID
from ottla.protocol.schema.wire import ProtocolError, uvarint

KEY_VERSION: Final = 0
FIRST_FLEXIBLE: Final = 1
"""The first version of the value with tagged fields."""
LATEST_VALUE_VERSION: Final = 1

_VERSION = Struct(">h")
_KEY_HEAD: Final = Struct(">hh")  # version, length of the id
_VALUE_HEAD: Final = Struct(">hqhib")  # version, producer id and epoch, timeout, state
_TIMES: Final = Struct(">qq")
_NO_TAGGED_FIELDS: Final = b"\0"
_NULL: Final = -1
_PREVIOUS_PRODUCER_ID: Final = Struct(">BBq")  # tag, size, value
_NEXT_PRODUCER_ID: Final = Struct(">BBq")
_CLIENT_VERSION: Final = Struct(">BBh")
_STATES: Final = {state.value: state for state in TransactionState}


def transaction_key(transactional_id: str) -> bytes:
    """The key of the records of a transactional id."""
    name = transactional_id.encode()
    return _KEY_HEAD.pack(KEY_VERSION, len(name)) + name


async def transaction_value(transit: TransitMetadata, version: int) -> bytes:
    """The value that a transition leads to, with pauses: a transaction may have 100,000 topics.

    Hand-written, because the declared message takes three times as long. A test holds both equal.
    """
    state = transit.state
    partitions = transit.partitions
    count = _NULL if state is TransactionState.EMPTY else len(partitions)
    data = bytearray(_VALUE_HEAD.pack(version, transit.producer_id, transit.producer_epoch, transit.timeout_ms, state))
    data += _count(count, version)
    if count > 0:
        for number, (topic, indexes) in enumerate(partitions.items()):
            if number:  # so that the record of a usual transaction is encoded at once
                await pause()
            name = topic.encode()
            layout, before_name, before_indexes, end = _topic(len(name), len(indexes), version)
            data += layout.pack(before_name, name, before_indexes, *sorted(indexes), end)
    data += _TIMES.pack(transit.last_update_ms, transit.start_ms)
    if version >= FIRST_FLEXIBLE:
        data += _tagged_fields(transit)
    return bytes(data)


@lru_cache(maxsize=256)
def _count(count: int, version: int) -> bytes:
    """The number of topics; -1 stands for null."""
    return count.to_bytes(4, "big", signed=True) if version < FIRST_FLEXIBLE else uvarint(count + 1)


@lru_cache(maxsize=256)
def _topic(name_size: int, count: int, version: int) -> tuple[Struct, bytes, bytes, bytes]:
    """The layout of a topic, and its bytes before the name, before the indexes and behind them."""
    if version < FIRST_FLEXIBLE:
        before_name, before_indexes, end = name_size.to_bytes(2, "big"), count.to_bytes(4, "big"), b""
    else:
        before_name, before_indexes, end = uvarint(name_size + 1), uvarint(count + 1), _NO_TAGGED_FIELDS
    layout = Struct(f">{len(before_name)}s{name_size}s{len(before_indexes)}s{count}i{len(end)}s")
    return layout, before_name, before_indexes, end


def _tagged_fields(transit: TransitMetadata) -> bytes:
    """Those that differ from their defaults."""
    fields = []
    if transit.previous_producer_id != NO_PRODUCER_ID:
        fields.append(_PREVIOUS_PRODUCER_ID.pack(0, 8, transit.previous_producer_id))
    if transit.next_producer_id != NO_PRODUCER_ID:
        fields.append(_NEXT_PRODUCER_ID.pack(1, 8, transit.next_producer_id))
    if transit.client_version:
        fields.append(_CLIENT_VERSION.pack(2, 2, transit.client_version))
    return bytes((len(fields), *b"".join(fields)))


def read_key(key: bytes) -> str | None:
    """The transactional id; None for a key of another version, which is of something else. Raises ProtocolError."""
    if len(key) < _VERSION.size:
        raise ProtocolError(f"a key of {len(key)} bytes")
    (version,) = _VERSION.unpack_from(key)
    if version != KEY_VERSION:
        return None
    found, _ = TransactionLogKey.decode(key, KEY_VERSION, _VERSION.size)
    return found.transactional_id


def read_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """The transactional id as it was stored. Raises ProtocolError."""
    version = _VERSION.unpack_from(value)[0] if len(value) >= _VERSION.size else -1
    if not 0 <= version <= LATEST_VALUE_VERSION:
        raise ProtocolError(f"a value of version {version}")
    stored, _ = TransactionLogValue.decode(value, version, _VERSION.size)
    state = _STATES.get(stored.transaction_status)
    if state is None:
        raise ProtocolError(f"a state of number {stored.transaction_status}")
    partitions = NO_PARTITIONS
    if state is not TransactionState.EMPTY:
        partitions = of_pairs((each.topic, each.partition_ids) for each in stored.transaction_partitions or ()) or NO_PARTITIONS
    return TransactionMetadata(
        transactional_id,
        stored.producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        stored.transaction_last_update_timestamp_ms,
        state=state,
        partitions=partitions,
        start_ms=stored.transaction_start_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        client_version=stored.client_transaction_version,
    )
