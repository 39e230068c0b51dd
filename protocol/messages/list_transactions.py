"""Declares ListTransactions (api 66, KIP-664): a broker lists the transactions that it coordinates.

Version 1 can ask for those older than a duration (KIP-994), version 2 for those whose id matches a pattern (KIP-1152).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    field,
    request,
    response,
    since,
    struct,
)


@request(ApiKey.LIST_TRANSACTIONS)
class ListTransactionsRequest(Message):
    state_filters: Array[String] = field()
    producer_id_filters: Array[Int64] = field()
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: NullableString = since(2, default=None)


@struct
class TransactionState(Struct):
    transactional_id: String = field()
    producer_id: Int64 = field()
    transaction_state: String = field()


@response(ApiKey.LIST_TRANSACTIONS)
class ListTransactionsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    unknown_state_filters: Array[String] = field()
    transaction_states: Array[TransactionState] = field()
