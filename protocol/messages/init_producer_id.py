"""Declares InitProducerId (api 22): a producer gets its id and epoch, for a transactional id or only for idempotence (KIP-98).

- 3 lets a producer continue with the id and epoch it had (KIP-360).
- 4 may answer PRODUCER_FENCED (KIP-588).
- 5 may answer TRANSACTION_ABORTABLE (KIP-890).
- 6 has two-phase commit (KIP-939).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Bool, Int16, Int32, Int64, Message, NullableString, field, request, response, since


@request(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdRequest(Message):
    transactional_id: NullableString = field()
    transaction_timeout_ms: Int32 = field()
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: Bool = since(6)
    keep_prepared_txn: Bool = since(6)


@response(ApiKey.INIT_PRODUCER_ID)
class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16 = field()
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field()
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
