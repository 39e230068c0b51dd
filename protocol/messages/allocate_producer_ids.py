"""Declares AllocateProducerIds (api 67, KIP-730): a broker takes a block of producer ids from the controller."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Int16, Int32, Int64, Message, field, request, response


@request(ApiKey.ALLOCATE_PRODUCER_IDS)
class AllocateProducerIdsRequest(Message):
    broker_id: Int32 = field()
    broker_epoch: Int64 = field(default=-1)


@response(ApiKey.ALLOCATE_PRODUCER_IDS)
class AllocateProducerIdsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    producer_id_start: Int64 = field()
    producer_id_len: Int32 = field()
