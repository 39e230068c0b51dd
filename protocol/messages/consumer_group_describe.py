"""Declares ConsumerGroupDescribe (api 69, KIP-848): a broker describes groups of the new protocol, their members and assignments.

Version 1 tells members of the classic protocol from others (KIP-1099).
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
    Uuid,
    field,
    request,
    response,
    since,
    struct,
)


@request(ApiKey.CONSUMER_GROUP_DESCRIBE)
class ConsumerGroupDescribeRequest(Message):
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
    instance_id: NullableString = field(default=None)
    rack_id: NullableString = field(default=None)
    member_epoch: Int32 = field()
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: Array[String] = field()
    subscribed_topic_regex: NullableString = field(default=None)
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    member_type: Int8 = since(1, default=-1, ignorable=True)


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


@response(ApiKey.CONSUMER_GROUP_DESCRIBE)
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = field()
    groups: Array[DescribedGroup] = field()
