"""Declares DescribeTransactions (api 65, KIP-664): a transaction coordinator describes transactional ids."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int16, Int32, Int64, Message, String, Struct, field, request, response, struct


@request(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsRequest(Message):
    transactional_ids: Array[String] = field()


@struct
class TopicData(Struct):
    topic: String = field()
    partitions: Array[Int32] = field()


@struct
class TransactionState(Struct):
    error_code: Int16 = field()
    transactional_id: String = field()
    transaction_state: String = field()
    transaction_timeout_ms: Int32 = field()
    transaction_start_time_ms: Int64 = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    topics: Array[TopicData] = field()


@response(ApiKey.DESCRIBE_TRANSACTIONS)
class DescribeTransactionsResponse(Message):
    throttle_time_ms: Int32 = field()
    transaction_states: Array[TransactionState] = field()
