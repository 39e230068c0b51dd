"""Declares classic groups as records of `__consumer_offsets`: the name of a group is the key (version 2), its members are in the value.

Keys and values are preceded by their version as an int16. A null value is a tombstone. Apache Kafka 3.9 writes values of version 3.

- 1 adds the rebalance timeout.
- 2 adds the time of the last change of state.
- 3 adds static members (KIP-345).
- 4 is flexible.
"""

from ottla.protocol.schema.message import Array, Bytes, Int32, Int64, Message, NullableString, String, Struct, data, field, since, struct


@data(versions=(2, 2), flexible=None)
class GroupMetadataKey(Message):
    group: String = field()


@struct
class MemberMetadata(Struct):
    member_id: String = field()
    group_instance_id: NullableString = since(3, default=None, ignorable=True)
    client_id: String = field()
    client_host: String = field()
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32 = field()
    subscription: Bytes = field()
    assignment: Bytes = field()


@data(versions=(0, 4), flexible=4)
class GroupMetadataValue(Message):
    protocol_type: String = field()
    generation: Int32 = field()
    protocol: NullableString = field()
    leader: NullableString = field()
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: Array[MemberMetadata] = field()
