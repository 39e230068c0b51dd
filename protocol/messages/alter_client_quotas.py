"""Declares AlterClientQuotas (api 49, KIP-546): a client sets or removes quotas of entities."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Float64,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)


@struct
class AlterClientQuotasRequestEntityData(Struct):
    entity_type: String = field()
    entity_name: NullableString = field()


@struct
class OpData(Struct):
    key: String = field()
    value: Float64 = field()
    remove: Bool = field()


@struct
class AlterClientQuotasRequestEntryData(Struct):
    entity: Array[AlterClientQuotasRequestEntityData] = field()
    ops: Array[OpData] = field()


@request(ApiKey.ALTER_CLIENT_QUOTAS)
class AlterClientQuotasRequest(Message):
    entries: Array[AlterClientQuotasRequestEntryData] = field()
    validate_only: Bool = field()


@struct
class AlterClientQuotasResponseEntityData(Struct):
    entity_type: String = field()
    entity_name: NullableString = field()


@struct
class AlterClientQuotasResponseEntryData(Struct):
    error_code: Int16 = field()
    error_message: NullableString = field()
    entity: Array[AlterClientQuotasResponseEntityData] = field()


@response(ApiKey.ALTER_CLIENT_QUOTAS)
class AlterClientQuotasResponse(Message):
    throttle_time_ms: Int32 = field()
    entries: Array[AlterClientQuotasResponseEntryData] = field()
