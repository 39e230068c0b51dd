"""Declares ListConfigResources (api 74): a client lists the configuration resources of some types, of all if it names none.

Version 0 lists client metrics alone (KIP-714), version 1 all types (KIP-1142).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int8, Int16, Int32, Message, String, Struct, field, request, response, since, struct


@request(ApiKey.LIST_CONFIG_RESOURCES)
class ListConfigResourcesRequest(Message):
    resource_types: Array[Int8] = since(1)


@struct
class ConfigResource(Struct):
    resource_name: String = field()
    resource_type: Int8 = since(1, default=16, ignorable=True)


@response(ApiKey.LIST_CONFIG_RESOURCES)
class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    config_resources: Array[ConfigResource] = field()
