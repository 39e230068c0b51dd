"""Envelope (api 58, KIP-590): a request forwarded to the controller with the principal it came from.

A broker in ZooKeeper mode lists it and closes the connection of whoever sends it.
"""

from protocol.api_keys import ApiKey
from protocol.schema.message import Bytes, Int16, Message, NullableBytes, field, request, response


@request(ApiKey.ENVELOPE)
class EnvelopeRequest(Message):
    request_data: Bytes = field()
    request_principal: NullableBytes = field()
    client_host_address: Bytes = field()


@response(ApiKey.ENVELOPE)
class EnvelopeResponse(Message):
    response_data: NullableBytes = field(default=None)
    error_code: Int16 = field()
