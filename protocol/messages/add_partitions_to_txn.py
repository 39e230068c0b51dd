"""Declares AddPartitionsToTxn (api 24): a producer names the partitions that its transaction is about to write to (KIP-98).

Clients use versions up to 3, for one transaction. Later versions are for brokers: they have many transactions, and can only verify that
the partitions belong to them (KIP-890). Version 2 may answer PRODUCER_FENCED (KIP-588), version 5 TRANSACTION_ABORTABLE.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class AddPartitionsToTxnTopic(Struct):
    name: String = field()
    partitions: Array[Int32] = field()


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    verify_only: Bool = field()
    topics: Array[AddPartitionsToTxnTopic] = field()


@request(ApiKey.ADD_PARTITIONS_TO_TXN)
class AddPartitionsToTxnRequest(Message):
    transactions: Array[AddPartitionsToTxnTransaction] = since(4)
    v3_and_below_transactional_id: String = until(3)
    v3_and_below_producer_id: Int64 = until(3)
    v3_and_below_producer_epoch: Int16 = until(3)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = until(3)


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = field()
    partition_error_code: Int16 = field()


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: String = field()
    results_by_partition: Array[AddPartitionsToTxnPartitionResult] = field()


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: String = field()
    topic_results: Array[AddPartitionsToTxnTopicResult] = field()


@response(ApiKey.ADD_PARTITIONS_TO_TXN)
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = since(4, ignorable=True)
    results_by_transaction: Array[AddPartitionsToTxnResult] = since(4)
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = until(3)
