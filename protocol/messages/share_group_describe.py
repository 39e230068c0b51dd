"""Declares ShareGroupDescribe (api 77): a broker describes share groups, their members and assignments (KIP-932)."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableString,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    struct,
)


@request(ApiKey.SHARE_GROUP_DESCRIBE)
class ShareGroupDescribeRequest(Message):
    group_ids: Array[String] = field()
    include_authorized_operations: Bool = field()


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = field()
    topic_name: String = field()
    partitions: Array[Int32] = field()


@struct
class Assignment(Struct):
    topic_partitions: Array[TopicPartitions] = field()


@struct
class Member(Struct):
    member_id: String = field()
    rack_id: NullableString = field(default=None)
    member_epoch: Int32 = field()
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: Array[String] = field()
    assignment: Assignment = field()


@struct
class DescribedGroup(Struct):
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    group_id: String = field()
    group_state: String = field()
    group_epoch: Int32 = field()
    assignment_epoch: Int32 = field()
    assignor_name: String = field()
    members: Array[Member] = field()
    authorized_operations: Int32 = field(default=-(2**31))


@response(ApiKey.SHARE_GROUP_DESCRIBE)
class ShareGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = field()
    groups: Array[DescribedGroup] = field()
