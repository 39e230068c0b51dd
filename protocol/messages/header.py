"""Declares the headers of requests and responses. `ottla.protocol.schema.registry` has the header version of each message.

Request header 0 has no client id; only ControlledShutdown 0 uses it. 1 has a client id, 2 also tagged fields (KIP-482). The client id
keeps its old encoding in 2, so that a broker can read it before it knows whether it supports the version. Response header 0 is the
correlation id, 1 adds tagged fields.
"""

from ottla.protocol.schema.message import Int16, Int32, Message, NullableString, field, header, since


@header(versions=(0, 2), flexible=2)
class RequestHeader(Message):
    request_api_key: Int16 = field()
    request_api_version: Int16 = field()
    correlation_id: Int32 = field()
    client_id: NullableString = since(1, ignorable=True, flexible=False)


@header(versions=(0, 1), flexible=1)
class ResponseHeader(Message):
    correlation_id: Int32 = field()
