"""Declares ShareGroupHeartbeat (api 76): a member joins, stays in or leaves a share group (KIP-932).

Null and -1 mean "unchanged". Member epoch 0 joins, -1 leaves.
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
    struct,
)


@request(ApiKey.SHARE_GROUP_HEARTBEAT)
class ShareGroupHeartbeatRequest(Message):
    group_id: String = field()
    member_id: String = field()
    member_epoch: Int32 = field()
    rack_id: NullableString = field(default=None)
    subscribed_topic_names: NullableArray[String] = field(default=None)


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = field()
    partitions: Array[Int32] = field()


@struct
class Assignment(Struct):
    topic_partitions: Array[TopicPartitions] = field()


@response(ApiKey.SHARE_GROUP_HEARTBEAT)
class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    member_id: NullableString = field(default=None)
    member_epoch: Int32 = field()
    heartbeat_interval_ms: Int32 = field()
    assignment: Assignment | None = field(default=None)
