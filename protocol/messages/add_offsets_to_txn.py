"""Declares AddOffsetsToTxn (api 25): a producer names the group whose offsets its transaction is about to commit (KIP-98).

Version 2 may answer PRODUCER_FENCED (KIP-588), version 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Int16, Int32, Int64, Message, String, field, request, response


@request(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnRequest(Message):
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    group_id: String = field()


@response(ApiKey.ADD_OFFSETS_TO_TXN)
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
