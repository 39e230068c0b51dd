"""Declares UpdateMetadata (api 6): the controller gives every broker the contents of its answers to Metadata.

- 0 has one address per broker, 1 has many.
- 2 adds racks.
- 3 adds listener names (KIP-103).
- 4 adds offline replicas (KIP-112).
- 5 groups partitions by topic and adds the broker epoch (KIP-380).
- 7 adds topic ids (KIP-516).
- 8 marks requests of a KRaft controller, and full lists (KIP-866).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    SharedStruct,
    String,
    Struct,
    TupleOf,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class UpdateMetadataPartitionState(Struct):
    topic_name: String = until(4, ignorable=True)
    partition_index: Int32 = field()
    controller_epoch: Int32 = field()
    leader: Int32 = field()
    leader_epoch: Int32 = field()
    isr: TupleOf[Int32] = field()
    zk_version: Int32 = field()
    replicas: TupleOf[Int32] = field()
    offline_replicas: TupleOf[Int32] = since(4, ignorable=True)


@struct
class UpdateMetadataTopicState(SharedStruct):
    topic_name: String = field()
    topic_id: Uuid = since(7, ignorable=True)
    partition_states: Array[UpdateMetadataPartitionState] = field()


@struct
class UpdateMetadataEndpoint(Struct):
    port: Int32 = field()
    host: String = field()
    listener: String = since(3, ignorable=True)
    security_protocol: Int16 = field()


@struct
class UpdateMetadataBroker(SharedStruct):
    id: Int32 = field()
    v0_host: String = until(0, ignorable=True)
    v0_port: Int32 = until(0, ignorable=True)
    endpoints: Array[UpdateMetadataEndpoint] = since(1, ignorable=True)
    rack: NullableString = since(2, ignorable=True)


@request(ApiKey.UPDATE_METADATA)
class UpdateMetadataRequest(Message):
    """`type` is 0 for unknown, 1 for incremental, 2 for full."""

    controller_id: Int32 = field()
    is_kraft_controller: Bool = since(8)
    type: Int8 = since(8, tag=0)
    controller_epoch: Int32 = field()
    broker_epoch: Int64 = since(5, default=-1, ignorable=True)
    ungrouped_partition_states: Array[UpdateMetadataPartitionState] = until(4)
    topic_states: Array[UpdateMetadataTopicState] = since(5)
    live_brokers: Array[UpdateMetadataBroker] = field()


@response(ApiKey.UPDATE_METADATA)
class UpdateMetadataResponse(Message):
    error_code: Int16 = field()
