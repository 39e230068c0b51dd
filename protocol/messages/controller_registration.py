"""ControllerRegistration (api 70): a KRaft controller says what it is (KIP-919). Declared, not served."""

from protocol.api_keys import ApiKey
from protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class Listener(Struct):
    name: String = field()
    host: String = field()
    port: UInt16 = field()
    security_protocol: Int16 = field()


@struct
class Feature(Struct):
    name: String = field()
    min_supported_version: Int16 = field()
    max_supported_version: Int16 = field()


@request(ApiKey.CONTROLLER_REGISTRATION)
class ControllerRegistrationRequest(Message):
    controller_id: Int32 = field()
    incarnation_id: Uuid = field()
    zk_migration_ready: Bool = field()
    listeners: Array[Listener] = field()
    features: Array[Feature] = field()


@response(ApiKey.CONTROLLER_REGISTRATION)
class ControllerRegistrationResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field()
