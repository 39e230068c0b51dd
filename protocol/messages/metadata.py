"""Declares Metadata (api 3): a broker lists brokers, the controller, and topics with their leaders, replicas and ISR.

A request for all topics has an empty array in version 0, and null from version 1 on, where an empty array asks for no topic.

- 1 adds the controller and racks.
- 2 adds the cluster id (KIP-78).
- 4 has a flag to create missing topics.
- 5 adds offline replicas (KIP-112).
- 7 adds leader epochs (KIP-320).
- 8 adds authorized operations (KIP-430); 11 drops those of the cluster (KIP-700).
- 10 adds topic ids, 12 asks by topic id (KIP-516).
- 13 has an error code for the whole answer (KIP-1102).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
    Struct,
    Uuid,
    between,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class MetadataRequestTopic(Struct):
    topic_id: Uuid = since(10, ignorable=True)
    name: NullableString = field(nullable_since=10)


@request(ApiKey.METADATA)
class MetadataRequest(Message):
    topics: NullableArray[MetadataRequestTopic] = field(nullable_since=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = between(8, 10)
    include_topic_authorized_operations: Bool = since(8)


@struct
class MetadataResponseBroker(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: NullableString = since(1, default=None, ignorable=True)


@struct
class MetadataResponsePartition(Struct):
    error_code: Int16 = field()
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: Array[Int32] = field()
    isr_nodes: Array[Int32] = field()
    offline_replicas: Array[Int32] = since(5, ignorable=True)


@struct
class MetadataResponseTopic(Struct):
    error_code: Int16 = field()
    name: NullableString = field(nullable_since=12)
    topic_id: Uuid = since(10, ignorable=True)
    is_internal: Bool = since(1, ignorable=True)
    partitions: Array[MetadataResponsePartition] = field()
    topic_authorized_operations: Int32 = since(8, default=-(2**31))


@response(ApiKey.METADATA)
class MetadataResponse(Message):
    """Authorized operations are bit sets. The smallest int32 stands for "not requested"."""

    throttle_time_ms: Int32 = since(3, ignorable=True)
    brokers: Array[MetadataResponseBroker] = field()
    cluster_id: NullableString = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[MetadataResponseTopic] = field()
    cluster_authorized_operations: Int32 = between(8, 10, default=-(2**31))
    error_code: Int16 = since(13, ignorable=True)
