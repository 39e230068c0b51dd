"""Declares committed offsets as records of `__consumer_offsets`, with keys of versions 0 and 1.

Keys and values are preceded by their version as an int16. Apache Kafka 3.9 writes values of version 3, or of version 1 when a client gave
a retention time.

- 1 is the only one with an expiry time (KIP-211 removed it).
- 3 adds the leader epoch (KIP-320).
- 4 is flexible, and may have the id of the topic.
"""

from ottla.protocol.schema.message import Int32, Int64, Message, String, Uuid, between, data, field, since


@data(versions=(0, 1), flexible=None)
class OffsetCommitKey(Message):
    group: String = field()
    topic: String = field()
    partition: Int32 = field()


@data(versions=(0, 4), flexible=4)
class OffsetCommitValue(Message):
    offset: Int64 = field()
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: String = field()
    commit_timestamp: Int64 = field()
    expire_timestamp: Int64 = between(1, 1, default=-1, ignorable=True)
    topic_id: Uuid = since(4, ignorable=True, tag=0)
