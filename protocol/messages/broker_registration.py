"""BrokerRegistration (api 62): a broker joins a KRaft cluster (KIP-631). Declared, not served.

1 is for migrating brokers (KIP-866), 2 lists log directories (KIP-858), 3 the previous epoch (KIP-966), 4 allows a feature's minimum to
be 0.
"""

from protocol.api_keys import ApiKey
from protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
    request,
    response,
    since,
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


@request(ApiKey.BROKER_REGISTRATION)
class BrokerRegistrationRequest(Message):
    broker_id: Int32 = field()
    cluster_id: String = field()
    incarnation_id: Uuid = field()
    listeners: Array[Listener] = field()
    features: Array[Feature] = field()
    rack: NullableString = field()
    is_migrating_zk_broker: Bool = since(1)
    log_dirs: Array[Uuid] = since(2, ignorable=True)
    previous_broker_epoch: Int64 = since(3, default=-1, ignorable=True)


@response(ApiKey.BROKER_REGISTRATION)
class BrokerRegistrationResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    broker_epoch: Int64 = field(default=-1)
