"""Committed offsets as records of `__consumer_offsets`: keys of versions 0 and 1, preceded like their values by the version as an int16.

Values: 1 alone has an expiry of its own (KIP-211 ended that), 3 adds the leader epoch (KIP-320), 4 is flexible. Apache Kafka 3.9 writes
3, or 1 when a client gave a retention time.
"""

from protocol.schema.message import Int32, Int64, Message, String, between, data, field, since


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
