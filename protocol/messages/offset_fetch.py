"""Declares OffsetFetch (api 9): a coordinator gives the committed offsets of a group, for some partitions or (null, from 2) for all.

- 0 reads from ZooKeeper, 1 from `__consumer_offsets`.
- 2 has an error code for the whole answer.
- 5 adds leader epochs (KIP-320).
- 7 can refuse offsets that an open transaction may still change (KIP-447).
- 8 has many groups in one request (KIP-709).
- 9 names the member of the new protocol (KIP-848).
- 10 has topic ids in place of names.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
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
class OffsetFetchRequestTopic(Struct):
    name: String = field()
    partition_indexes: Array[Int32] = field()


@struct
class OffsetFetchRequestTopics(Struct):
    name: String = between(8, 9, ignorable=True)
    topic_id: Uuid = since(10, ignorable=True)
    partition_indexes: Array[Int32] = field()


@struct
class OffsetFetchRequestGroup(Struct):
    group_id: String = field()
    member_id: NullableString = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: NullableArray[OffsetFetchRequestTopics] = field()


@request(ApiKey.OFFSET_FETCH)
class OffsetFetchRequest(Message):
    group_id: String = until(7)
    topics: NullableArray[OffsetFetchRequestTopic] = until(7, nullable_since=2)
    groups: Array[OffsetFetchRequestGroup] = since(8)
    require_stable: Bool = since(7)


@struct
class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = since(5, default=-1, ignorable=True)
    metadata: NullableString = field()
    error_code: Int16 = field()


@struct
class OffsetFetchResponseTopic(Struct):
    name: String = field()
    partitions: Array[OffsetFetchResponsePartition] = field()


@struct
class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field(default=-1, ignorable=True)
    metadata: NullableString = field()
    error_code: Int16 = field()


@struct
class OffsetFetchResponseTopics(Struct):
    name: String = between(8, 9, ignorable=True)
    topic_id: Uuid = since(10, ignorable=True)
    partitions: Array[OffsetFetchResponsePartitions] = field()


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: String = field()
    topics: Array[OffsetFetchResponseTopics] = field()
    error_code: Int16 = field()


@response(ApiKey.OFFSET_FETCH)
class OffsetFetchResponse(Message):
    throttle_time_ms: Int32 = since(3, ignorable=True)
    topics: Array[OffsetFetchResponseTopic] = until(7)
    error_code: Int16 = between(2, 7, ignorable=True)
    groups: Array[OffsetFetchResponseGroup] = since(8)
