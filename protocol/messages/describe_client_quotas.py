"""Declares DescribeClientQuotas (api 48, KIP-546): a broker lists the quotas of users, client ids and addresses.

It lists quotas that match all components of the request.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)


@struct
class ComponentData(Struct):
    """`match_type` is 0 for an exact name, 1 for the default, 2 for any."""

    entity_type: String = field()
    match_type: Int8 = field()
    match: NullableString = field()


@request(ApiKey.DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasRequest(Message):
    components: Array[ComponentData] = field()
    strict: Bool = field()


@struct
class EntityData(Struct):
    entity_type: String = field()
    entity_name: NullableString = field()


@struct
class ValueData(Struct):
    key: String = field()
    value: Float64 = field()


@struct
class EntryData(Struct):
    entity: Array[EntityData] = field()
    values: Array[ValueData] = field()


@response(ApiKey.DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()
    entries: NullableArray[EntryData] = field()
