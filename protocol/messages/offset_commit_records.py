"""offset_commit_records (api None)."""

from protocol.schema import Int32, Int64, Message, String, between, data, field, since


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
