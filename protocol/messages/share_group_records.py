"""Share groups as records of `__consumer_offsets` (KIP-932), keyed by version: 9 topics, 10 a member, 11 the group. Declared, not used."""

from protocol.schema.message import Array, Int32, Message, NullableString, String, Struct, Uuid, data, field, struct


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


@data(versions=(9, 9), flexible=None)
class ShareGroupPartitionMetadataKey(Message):
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
class ShareGroupPartitionMetadataValue(Message):
    initialized_topics: Array[TopicPartitionsInfo] = field()
    deleting_topics: Array[TopicInfo] = field()
