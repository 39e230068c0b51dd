"""Declares OffsetCommit (api 8): a member, or a client that is not a member (generation -1), commits offsets of a group.

- 0 is for offsets in ZooKeeper.
- 1 carries generation, member, and a commit time per partition.
- 2 to 4 carry one retention time for all partitions; 5 drops it (KIP-211).
- 6 has the leader epoch (KIP-320).
- 7 has the static member's name (KIP-345).
- 9 serves members of the new protocol, whose epoch takes the place of the generation (KIP-848).
- 10 has topic ids in place of names.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    Uuid,
    between,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    commit_timestamp: Int64 = between(1, 1, default=-1)
    committed_metadata: NullableString = field()


@struct
class OffsetCommitRequestTopic(Struct):
    name: String = until(9, ignorable=True)
    topic_id: Uuid = since(10, ignorable=True)
    partitions: Array[OffsetCommitRequestPartition] = field()


@request(ApiKey.OFFSET_COMMIT)
class OffsetCommitRequest(Message):
    """`retention_time_ms` -1 asks for the broker's own retention time."""

    group_id: String = field()
    generation_id_or_member_epoch: Int32 = since(1, default=-1, ignorable=True)
    member_id: String = since(1, ignorable=True)
    group_instance_id: NullableString = since(7, default=None)
    retention_time_ms: Int64 = between(2, 4, default=-1, ignorable=True)
    topics: Array[OffsetCommitRequestTopic] = field()


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class OffsetCommitResponseTopic(Struct):
    name: String = until(9, ignorable=True)
    topic_id: Uuid = since(10, ignorable=True)
    partitions: Array[OffsetCommitResponsePartition] = field()


@response(ApiKey.OFFSET_COMMIT)
class OffsetCommitResponse(Message):
    throttle_time_ms: Int32 = since(3, ignorable=True)
    topics: Array[OffsetCommitResponseTopic] = field()
