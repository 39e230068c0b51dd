"""Declares transactions as records of `__transaction_state` (KIP-98): the transactional id is the key, the value has its state.

Both are preceded by their version as an int16. Version 1 of the value is flexible. Apache Kafka 3.9 in ZooKeeper mode writes 0.
"""

from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
    String,
    Struct,
    data,
    field,
    since,
    struct,
)


@data(versions=(0, 0), flexible=None)
class TransactionLogKey(Message):
    transactional_id: String = field()


@struct
class PartitionsSchema(Struct):
    topic: String = field()
    partition_ids: Array[Int32] = field()


@data(versions=(0, 1), flexible=1)
class TransactionLogValue(Message):
    producer_id: Int64 = field()
    previous_producer_id: Int64 = since(1, default=-1, tag=0)
    next_producer_id: Int64 = since(1, default=-1, tag=1)
    producer_epoch: Int16 = field()
    next_producer_epoch: Int16 = since(1, default=-1, tag=3)
    transaction_timeout_ms: Int32 = field()
    transaction_status: Int8 = field()
    transaction_partitions: NullableArray[PartitionsSchema] = field()
    transaction_last_update_timestamp_ms: Int64 = field()
    transaction_start_timestamp_ms: Int64 = field()
    client_transaction_version: Int16 = since(1, tag=2)
