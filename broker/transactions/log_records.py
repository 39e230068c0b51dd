"""Encodes and decodes the records of `__transaction_state` as Apache Kafka 3.9 in ZooKeeper mode does: keys and values of version 0.

The key is the transactional id. The value has no partitions (null) in the state Empty. Values of version 1, which brokers with the feature
`transaction.version` write, are read as well. The last producer id and epoch are not stored.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from ottla.broker.request.turns import Steps
from ottla.broker.transactions.metadata import TransactionMetadata, TransactionState, TransitMetadata
from ottla.broker.transactions.partitions import NO_PARTITIONS, of_pairs
from ottla.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from ottla.protocol.schema.wire import ProtocolError

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0
LATEST_VALUE_VERSION: Final = 1

_VERSION = Struct(">h")
_KEY_HEAD: Final = Struct(">hh")  # version, length of the id
_VALUE_HEAD: Final = Struct(">hqhibi")  # version, producer id and epoch, timeout, state, number of topics
_TIMES: Final = Struct(">qq")
_NULL: Final = -1
_STATES: Final = {state.value: state for state in TransactionState}


def transaction_key(transactional_id: str) -> bytes:
    """The key of the records of a transactional id."""
    name = transactional_id.encode()
    return _KEY_HEAD.pack(KEY_VERSION, len(name)) + name


def transaction_value(transit: TransitMetadata) -> Steps[bytes]:
    """The value that a transition leads to, in steps: a transaction may have 100,000 topics.

    Hand-written, because the declared message takes three times as long. A test holds both equal.
    """
    state = transit.state
    partitions = transit.partitions
    count = _NULL if state is TransactionState.EMPTY else len(partitions)
    data = bytearray(_VALUE_HEAD.pack(VALUE_VERSION, transit.producer_id, transit.producer_epoch, transit.timeout_ms, state, count))
    if count > 0:
        for topic, indexes in partitions.items():
            name = topic.encode()
            data += _topic(len(name), len(indexes)).pack(len(name), name, len(indexes), *sorted(indexes))
            yield
    data += _TIMES.pack(transit.last_update_ms, transit.start_ms)
    return bytes(data)


@lru_cache(maxsize=256)
def _topic(name_size: int, count: int) -> Struct:
    return Struct(f">h{name_size}si{count}i")


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
