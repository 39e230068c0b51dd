"""Declares share groups as records of `__consumer_offsets` (KIP-932): one pair of key and value per fact.

The version of a key gives its kind: 10 a member, 11 the group, 12 the target assignment, 13 one member's part of it, 14 a member's current
assignment, 15 the partitions whose state is initialized.
"""

from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    Uuid,
    data,
    field,
    struct,
)


@data(versions=(14, 14), flexible=None)
class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = field()
    partitions: Array[Int32] = field()


@data(versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32 = field()
    previous_member_epoch: Int32 = field()
    state: Int8 = field()
    assigned_partitions: Array[TopicPartitions] = field()


@data(versions=(10, 10), flexible=None)
class ShareGroupMemberMetadataKey(Message):
    group_id: String = field()
    member_id: String = field()


@data(versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue(Message):
    rack_id: NullableString = field()
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: Array[String] = field()


@data(versions=(11, 11), flexible=None)
class ShareGroupMetadataKey(Message):
    group_id: String = field()


@data(versions=(0, 0), flexible=0)
class ShareGroupMetadataValue(Message):
    epoch: Int32 = field()
    metadata_hash: Int64 = field()


@data(versions=(15, 15), flexible=None)
class ShareGroupStatePartitionMetadataKey(Message):
    group_id: String = field()


@struct
class TopicPartitionsInfo(Struct):
    topic_id: Uuid = field()
    topic_name: String = field()
    partitions: Array[Int32] = field()


@struct
class TopicInfo(Struct):
    topic_id: Uuid = field()
    topic_name: String = field()


@data(versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue(Message):
    initializing_topics: Array[TopicPartitionsInfo] = field()
    initialized_topics: Array[TopicPartitionsInfo] = field()
    deleting_topics: Array[TopicInfo] = field()


@data(versions=(13, 13), flexible=None)
class ShareGroupTargetAssignmentMemberKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class TopicPartition(Struct):
    topic_id: Uuid = field()
    partitions: Array[Int32] = field()


@data(versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue(Message):
    topic_partitions: Array[TopicPartition] = field()


@data(versions=(12, 12), flexible=None)
class ShareGroupTargetAssignmentMetadataKey(Message):
    group_id: String = field()


@data(versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32 = field()
    assignment_timestamp: Int64 = field(tag=0, default=0, ignorable=True)
