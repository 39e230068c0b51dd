"""Declares AlterConfigs (api 33): a client replaces all dynamic values of a resource (KIP-133).

IncrementalAlterConfigs supersedes it.
"""

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
    name: String = field()
    value: NullableString = field()


@struct
class AlterConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: Array[AlterableConfig] = field()


@request(ApiKey.ALTER_CONFIGS)
class AlterConfigsRequest(Message):
    resources: Array[AlterConfigsResource] = field()
    validate_only: Bool = field()


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field()
    error_message: NullableString = field()
    resource_type: Int8 = field()
    resource_name: String = field()


@response(ApiKey.ALTER_CONFIGS)
class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = field()
    responses: Array[AlterConfigsResourceResponse] = field()
