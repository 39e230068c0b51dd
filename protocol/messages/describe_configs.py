"""Declares DescribeConfigs (api 32): a broker lists values of topics, brokers and loggers, and their sources (KIP-133).

Version 1 adds sources and synonyms (KIP-226), version 3 types and documentation (KIP-569).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
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
    since,
    struct,
    until,
)


@struct
class DescribeConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configuration_keys: NullableArray[String] = field()


@request(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsRequest(Message):
    resources: Array[DescribeConfigsResource] = field()
    include_synonyms: Bool = since(1)
    include_documentation: Bool = since(3)


@struct
class DescribeConfigsSynonym(Struct):
    name: String = field()
    value: NullableString = field()
    source: Int8 = field()


@struct
class DescribeConfigsResourceResult(Struct):
    name: String = field()
    value: NullableString = field()
    read_only: Bool = field()
    is_default: Bool = until(0)
    config_source: Int8 = since(1, default=-1, ignorable=True)
    is_sensitive: Bool = field()
    synonyms: Array[DescribeConfigsSynonym] = since(1, ignorable=True)
    config_type: Int8 = since(3, ignorable=True)
    documentation: NullableString = since(3, ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    error_code: Int16 = field()
    error_message: NullableString = field()
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: Array[DescribeConfigsResourceResult] = field()


@response(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = field()
    results: Array[DescribeConfigsResult] = field()
