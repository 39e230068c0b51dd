"""Declares LeaderAndIsr (api 4): the controller makes a broker leader or follower of partitions.

- 1 marks new replicas.
- 2 groups partitions by topic, where 0 and 1 repeat the topic's name; it adds the broker epoch, which fences (KIP-380).
- 3 names the replicas that are being added and removed (KIP-455).
- 5 has the topic id, and marks a full list (KIP-516).
- 6 marks a leader that was elected uncleanly and recovers (KIP-704).
- 7 marks requests of a KRaft controller (KIP-866).
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
class LeaderAndIsrPartitionState(SharedStruct):
    topic_name: String = until(1, ignorable=True)
    partition_index: Int32 = field()
    controller_epoch: Int32 = field()
    leader: Int32 = field()
    leader_epoch: Int32 = field()
    isr: TupleOf[Int32] = field()
    partition_epoch: Int32 = field()
    replicas: TupleOf[Int32] = field()
    adding_replicas: TupleOf[Int32] = since(3, ignorable=True)
    removing_replicas: TupleOf[Int32] = since(3, ignorable=True)
    is_new: Bool = since(1, ignorable=True)
    leader_recovery_state: Int8 = since(6)


@struct
class LeaderAndIsrTopicState(Struct):
    topic_name: String = field()
    topic_id: Uuid = since(5, ignorable=True)
    partition_states: Array[LeaderAndIsrPartitionState] = field()


@struct
class LeaderAndIsrLiveLeader(Struct):
    broker_id: Int32 = field()
    host_name: String = field()
    port: Int32 = field()


@request(ApiKey.LEADER_AND_ISR)
class LeaderAndIsrRequest(Message):
    """`type` is 0 for unknown, 1 for incremental, 2 for full."""

    controller_id: Int32 = field()
    is_kraft_controller: Bool = since(7)
    controller_epoch: Int32 = field()
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)
    type: Int8 = since(5)
    ungrouped_partition_states: Array[LeaderAndIsrPartitionState] = until(1)
    topic_states: Array[LeaderAndIsrTopicState] = since(2)
    live_leaders: Array[LeaderAndIsrLiveLeader] = field()


@struct
class LeaderAndIsrPartitionError(Struct):
    topic_name: String = until(4, ignorable=True)
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid = field()
    partition_errors: Array[LeaderAndIsrPartitionError] = field()


@response(ApiKey.LEADER_AND_ISR)
class LeaderAndIsrResponse(Message):
    error_code: Int16 = field()
    partition_errors: Array[LeaderAndIsrPartitionError] = until(4)
    topics: Array[LeaderAndIsrTopicError] = since(5)
