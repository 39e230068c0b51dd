"""consumer_protocol (api None)."""

from protocol.schema import Array, Int32, Message, NullableBytes, NullableString, String, data, field, since, struct


@struct
class ConsumerProtocolAssignmentTopicPartition:
    topic: String = field()
    partitions: Array[Int32] = field()


@data(versions=(0, 3), flexible=None)
class ConsumerProtocolAssignment(Message):
    assigned_partitions: Array[ConsumerProtocolAssignmentTopicPartition] = field()
    user_data: NullableBytes = field(default=None)


@struct
class ConsumerProtocolSubscriptionTopicPartition:
    topic: String = field()
    partitions: Array[Int32] = field()


@data(versions=(0, 3), flexible=None)
class ConsumerProtocolSubscription(Message):
    topics: Array[String] = field()
    user_data: NullableBytes = field(default=None)
    owned_partitions: Array[ConsumerProtocolSubscriptionTopicPartition] = since(1, ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: NullableString = since(3, default=None, ignorable=True)
