"""Declares StopReplica (api 5): the controller has a broker stop replicas, and possibly delete them.

- 0 lists partitions one by one.
- 1 lists partitions by topic, with one delete flag for all as in 0, and has the broker epoch, which fences (KIP-380).
- 3 has delete flag and leader epoch per partition (KIP-570).
- 4 marks requests of a KRaft controller (KIP-866).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    between,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class StopReplicaPartitionV0(Struct):
    topic_name: String = field()
    partition_index: Int32 = field()


@struct
class StopReplicaTopicV1(Struct):
    name: String = field()
    partition_indexes: Array[Int32] = field()


@struct
class StopReplicaPartitionState(Struct):
    partition_index: Int32 = field()
    leader_epoch: Int32 = field(default=-1)
    delete_partition: Bool = field()


@struct
class StopReplicaTopicState(Struct):
    topic_name: String = field()
    partition_states: Array[StopReplicaPartitionState] = field()


@request(ApiKey.STOP_REPLICA)
class StopReplicaRequest(Message):
    controller_id: Int32 = field()
    is_kraft_controller: Bool = since(4)
    controller_epoch: Int32 = field()
    broker_epoch: Int64 = since(1, default=-1, ignorable=True)
    delete_partitions: Bool = until(2)
    ungrouped_partitions: Array[StopReplicaPartitionV0] = until(0)
    topics: Array[StopReplicaTopicV1] = between(1, 2)
    topic_states: Array[StopReplicaTopicState] = since(3)


@struct
class StopReplicaPartitionError(Struct):
    topic_name: String = field()
    partition_index: Int32 = field()
    error_code: Int16 = field()


@response(ApiKey.STOP_REPLICA)
class StopReplicaResponse(Message):
    error_code: Int16 = field()
    partition_errors: Array[StopReplicaPartitionError] = field()
