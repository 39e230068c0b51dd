"""header (api None)."""

from protocol.schema import Int16, Int32, Message, NullableString, field, header, since


@header(versions=(0, 2), flexible=2)
class RequestHeader(Message):
    request_api_key: Int16 = field()
    request_api_version: Int16 = field()
    correlation_id: Int32 = field()
    client_id: NullableString = since(1, ignorable=True, flexible=False)


@header(versions=(0, 1), flexible=1)
class ResponseHeader(Message):
    correlation_id: Int32 = field()
