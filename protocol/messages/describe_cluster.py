"""Declares DescribeCluster (api 60, KIP-700): a broker lists the brokers, the controller and the cluster id.

Version 1 can ask for the controllers instead (KIP-919). Version 2 can include fenced brokers (KIP-1073).
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
    since,
    struct,
)


@request(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: Bool = field()
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2)


@struct
class DescribeClusterBroker(Struct):
    broker_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: NullableString = field(default=None)
    is_fenced: Bool = since(2)


@response(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String = field()
    controller_id: Int32 = field(default=-1)
    brokers: Array[DescribeClusterBroker] = field()
    cluster_authorized_operations: Int32 = field(default=-(2**31))
