"""Declares groups of the new protocol as records of `__consumer_offsets` (KIP-848): one pair of key and value per fact.

The version of a key gives its kind: 3 the group, 4 the topics of the group, 5 a member, 6 the target assignment, 7 one member's part of
the target assignment, 8 a member's current assignment, 16 the topics that a regular expression has found.
"""

from ottla.protocol.schema.message import (
    Array,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    NullableArray,
    NullableString,
    String,
    Struct,
    Uuid,
    data,
    field,
    struct,
)


@data(versions=(8, 8), flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = field()
    partitions: Array[Int32] = field()
    assignment_epochs: NullableArray[Int32] = field(tag=0)


@data(versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32 = field()
    previous_member_epoch: Int32 = field()
    state: Int8 = field()
    assigned_partitions: Array[TopicPartitions] = field()
    partitions_pending_revocation: Array[TopicPartitions] = field()


@data(versions=(5, 5), flexible=None)
class ConsumerGroupMemberMetadataKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class ClassicProtocol(Struct):
    name: String = field()
    metadata: Bytes = field()


@struct
class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = field()
    supported_protocols: Array[ClassicProtocol] = field()


@data(versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message):
    instance_id: NullableString = field()
    rack_id: NullableString = field()
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: Array[String] = field()
    subscribed_topic_regex: NullableString = field()
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: NullableString = field()
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0)


@data(versions=(3, 3), flexible=None)
class ConsumerGroupMetadataKey(Message):
    group_id: String = field()


@data(versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message):
    epoch: Int32 = field()
    metadata_hash: Int64 = field(tag=0)


@data(versions=(4, 4), flexible=None)
class ConsumerGroupPartitionMetadataKey(Message):
    group_id: String = field()


@struct
class PartitionMetadata(Struct):
    partition: Int32 = field()
    racks: Array[String] = field()


@struct
class TopicMetadata(Struct):
    topic_id: Uuid = field()
    topic_name: String = field()
    num_partitions: Int32 = field()
    partition_metadata: Array[PartitionMetadata] = field()


@data(versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue(Message):
    topics: Array[TopicMetadata] = field()


@data(versions=(7, 7), flexible=None)
class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class TopicPartition(Struct):
    topic_id: Uuid = field()
    partitions: Array[Int32] = field()


@data(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    topic_partitions: Array[TopicPartition] = field()


@data(versions=(6, 6), flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: String = field()


@data(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32 = field()
    assignment_timestamp: Int64 = field(ignorable=True, tag=0)


@data(versions=(16, 16), flexible=None)
class ConsumerGroupRegularExpressionKey(Message):
    group_id: String = field()
    regular_expression: String = field()


@data(versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue(Message):
    topics: Array[String] = field()
    version: Int64 = field()
    timestamp: Int64 = field()
