"""Encodes and decodes the records of `__transaction_state` as Apache Kafka 3.9 in ZooKeeper mode does: keys and values of version 0.

The key is the transactional id. The value has no partitions (null) in the state Empty. Values of version 1, which brokers with the feature
`transaction.version` write, are read as well. The last producer id and epoch are not stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, cast

from broker.request.turns import Steps
from broker.transactions.metadata import TransactionMetadata, TransactionState, TransitMetadata
from broker.transactions.partitions import NO_PARTITIONS, Partitions, of_pairs
from protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.schema.wire import ProtocolError

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0
LATEST_VALUE_VERSION: Final = 1

_VERSION = Struct(">h")
_KEY_PREFIX: Final = _VERSION.pack(KEY_VERSION)
_VALUE_PREFIX: Final = _VERSION.pack(VALUE_VERSION)
_STATES: Final = {state.value: state for state in TransactionState}


def transaction_key(transactional_id: str) -> bytes:
    """The key of the records of a transactional id."""
    return _KEY_PREFIX + TransactionLogKey(transactional_id=transactional_id).encode(KEY_VERSION)


def transaction_value(transit: TransitMetadata) -> Steps[bytes]:
    """The value that a transition leads to, in steps: a transaction may have 100,000 topics."""
    topics = None if transit.state is TransactionState.EMPTY else _Topics(transit.partitions)
    value = TransactionLogValue(
        producer_id=transit.producer_id,
        producer_epoch=transit.producer_epoch,
        transaction_timeout_ms=transit.timeout_ms,
        transaction_status=transit.state,
        transaction_partitions=cast("list[PartitionsSchema] | None", topics),
        transaction_last_update_timestamp_ms=transit.last_update_ms,
        transaction_start_timestamp_ms=transit.start_ms,
    )
    parts = yield from value.encode_steps(VALUE_VERSION)
    return b"".join((_VALUE_PREFIX, *parts))


class _Topics:
    """The topics of a record, each made when it is encoded. The collector would scan 100,000 of them for long."""

    __slots__ = ("_partitions",)

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[PartitionsSchema]:
        for topic, indexes in self._partitions.items():
            yield PartitionsSchema(topic=topic, partition_ids=sorted(indexes))


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
    )
