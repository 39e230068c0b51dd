"""Declares IncrementalAlterConfigs (api 44, KIP-339): a client sets or deletes single values, or appends to or subtracts from them."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int8,
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
class AlterableConfig(Struct):
    """`config_operation` is 0 for set, 1 for delete, 2 for append, 3 for subtract."""

    name: String = field()
    config_operation: Int8 = field()
    value: NullableString = field()


@struct
class AlterConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: Array[AlterableConfig] = field()


@request(ApiKey.INCREMENTAL_ALTER_CONFIGS)
class IncrementalAlterConfigsRequest(Message):
    resources: Array[AlterConfigsResource] = field()
    validate_only: Bool = field()


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field()
    error_message: NullableString = field()
    resource_type: Int8 = field()
    resource_name: String = field()


@response(ApiKey.INCREMENTAL_ALTER_CONFIGS)
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: Int32 = field()
    responses: Array[AlterConfigsResourceResponse] = field()
