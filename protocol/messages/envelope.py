"""Declares Envelope (api 58, KIP-590): a broker forwards a request to the controller, with the principal that sent it.

A broker in ZooKeeper mode advertises the API, and closes a connection that uses it.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Bytes, Int16, Message, NullableBytes, field, request, response


@request(ApiKey.ENVELOPE)
class EnvelopeRequest(Message):
    request_data: Bytes = field()
    request_principal: NullableBytes = field()
    client_host_address: Bytes = field()


@response(ApiKey.ENVELOPE)
class EnvelopeResponse(Message):
    response_data: NullableBytes = field(default=None)
    error_code: Int16 = field()
