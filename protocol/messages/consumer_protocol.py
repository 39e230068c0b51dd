"""Declares the subscriptions and assignments that members of consumer groups exchange through JoinGroup and SyncGroup.

They are opaque to the broker, which reads them only to show them and to find the topics of a group. Each is preceded by its version as an
int16.

- 1 adds the partitions already owned (KIP-429).
- 2 adds the generation in which they were owned (KIP-792).
- 3 adds the rack (KIP-881).
"""

from ottla.protocol.schema.message import Array, Int32, Message, NullableBytes, NullableString, String, Struct, data, field, since, struct


@struct
class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: String = field()
    partitions: Array[Int32] = field()


@data(versions=(0, 3), flexible=None)
class ConsumerProtocolAssignment(Message):
    assigned_partitions: Array[ConsumerProtocolAssignmentTopicPartition] = field()
    user_data: NullableBytes = field(default=None)


@struct
class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: String = field()
    partitions: Array[Int32] = field()


@data(versions=(0, 3), flexible=None)
class ConsumerProtocolSubscription(Message):
    topics: Array[String] = field()
    user_data: NullableBytes = field(default=None)
    owned_partitions: Array[ConsumerProtocolSubscriptionTopicPartition] = since(1, ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: NullableString = since(3, default=None, ignorable=True)
