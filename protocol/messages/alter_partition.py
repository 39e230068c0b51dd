"""Declares AlterPartition (api 56): a leader asks the controller to change its ISR (KIP-497, there called AlterIsr).

- 1 reports that an unclean leader has recovered (KIP-704).
- 2 names topics by id (KIP-841).
- 3 gives each ISR member with its broker epoch (KIP-903).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class BrokerState(Struct):
    broker_id: Int32 = field()
    broker_epoch: Int64 = field(default=-1)


@struct
class AlterPartitionRequestPartitionData(Struct):
    partition_index: Int32 = field()
    leader_epoch: Int32 = field()
    new_isr: Array[Int32] = until(2)
    new_isr_with_epochs: Array[BrokerState] = since(3)
    leader_recovery_state: Int8 = since(1)
    partition_epoch: Int32 = field()


@struct
class AlterPartitionRequestTopicData(Struct):
    topic_name: String = until(1, ignorable=True)
    topic_id: Uuid = since(2, ignorable=True)
    partitions: Array[AlterPartitionRequestPartitionData] = field()


@request(ApiKey.ALTER_PARTITION)
class AlterPartitionRequest(Message):
    broker_id: Int32 = field()
    broker_epoch: Int64 = field(default=-1)
    topics: Array[AlterPartitionRequestTopicData] = field()


@struct
class AlterPartitionResponsePartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()
    isr: Array[Int32] = field()
    leader_recovery_state: Int8 = since(1, ignorable=True)
    partition_epoch: Int32 = field()


@struct
class AlterPartitionResponseTopicData(Struct):
    topic_name: String = until(1, ignorable=True)
    topic_id: Uuid = since(2, ignorable=True)
    partitions: Array[AlterPartitionResponsePartitionData] = field()


@response(ApiKey.ALTER_PARTITION)
class AlterPartitionResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    topics: Array[AlterPartitionResponseTopicData] = field()
