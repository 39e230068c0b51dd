"""Declares EndTxn (api 26): a producer commits or aborts its transaction (KIP-98).

Version 2 may answer PRODUCER_FENCED (KIP-588), version 4 TRANSACTION_ABORTABLE. Version 5 answers the
producer id and epoch for the next transaction (KIP-890).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Bool, Int16, Int32, Int64, Message, String, field, request, response, since


@request(ApiKey.END_TXN)
class EndTxnRequest(Message):
    transactional_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    committed: Bool = field()


@response(ApiKey.END_TXN)
class EndTxnResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)
