"""UnregisterBroker (api 64): forget a broker of a KRaft cluster (KIP-631). Declared, not served."""

from protocol.api_keys import ApiKey
from protocol.schema.message import Int16, Int32, Message, NullableString, field, request, response


@request(ApiKey.UNREGISTER_BROKER)
class UnregisterBrokerRequest(Message):
    broker_id: Int32 = field()


@response(ApiKey.UNREGISTER_BROKER)
class UnregisterBrokerResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()
