"""The headers that stand before every request and response.

Requests: version 0 without client id (ControlledShutdown 0 alone), 1 with it, 2 with tagged fields (KIP-482); the client id keeps its old
encoding in 2, so that a broker can read it before it knows whether it speaks the version. Responses: 0 the correlation id, 1 with tagged
fields. `protocol.schema.registry` says which version precedes which message.
"""

from protocol.schema.message import Int16, Int32, Message, NullableString, field, header, since


@header(versions=(0, 2), flexible=2)
class RequestHeader(Message):
    request_api_key: Int16 = field()
    request_api_version: Int16 = field()
    correlation_id: Int32 = field()
    client_id: NullableString = since(1, ignorable=True, flexible=False)


@header(versions=(0, 1), flexible=1)
class ResponseHeader(Message):
    correlation_id: Int32 = field()
