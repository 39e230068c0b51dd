"""Declares ConsumerGroupHeartbeat (api 68, KIP-848): a member joins, stays in or leaves a group of the new protocol.

The answer contains the member's assignment. Null and -1 mean "unchanged". Member epoch 0 joins, -1 leaves, -2 leaves as a static member
that will return. From version 1 on members choose their own id (KIP-1082), and may subscribe to topics by a regular expression.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class ConsumerGroupHeartbeatRequestTopicPartitions(Struct):
    topic_id: Uuid = field()
    partitions: Array[Int32] = field()


@request(ApiKey.CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatRequest(Message):
    group_id: String = field()
    member_id: String = field()
    member_epoch: Int32 = field()
    instance_id: NullableString = field(default=None)
    rack_id: NullableString = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: NullableArray[String] = field(default=None)
    subscribed_topic_regex: NullableString = since(1, default=None)
    server_assignor: NullableString = field(default=None)
    topic_partitions: NullableArray[ConsumerGroupHeartbeatRequestTopicPartitions] = field(default=None)


@struct
class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: Uuid = field()
    partitions: Array[Int32] = field()


@struct
class Assignment(Struct):
    topic_partitions: Array[ConsumerGroupHeartbeatResponseTopicPartitions] = field()


@response(ApiKey.CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    member_id: NullableString = field(default=None)
    member_epoch: Int32 = field()
    heartbeat_interval_ms: Int32 = field()
    assignment: Assignment | None = field(default=None)
