"""Declares OffsetForLeaderEpoch (api 23): a leader gives the end offset of a leader epoch.

Followers and consumers use it to find the offset at which two logs diverge (KIP-101, KIP-279).

- 1 answers the epoch that was found.
- 2 fences by the current leader epoch (KIP-320).
- 3 has the replica id of the sender: -1 for a consumer, -2 for a debugging consumer (KIP-392).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int16, Int32, Int64, Message, String, Struct, field, request, response, since, struct


@struct
class OffsetForLeaderPartition(Struct):
    partition: Int32 = field()
    current_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    leader_epoch: Int32 = field()


@struct
class OffsetForLeaderTopic(Struct):
    topic: String = field()
    partitions: Array[OffsetForLeaderPartition] = field()


@request(ApiKey.OFFSET_FOR_LEADER_EPOCH)
class OffsetForLeaderEpochRequest(Message):
    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: Array[OffsetForLeaderTopic] = field()


@struct
class EpochEndOffset(Struct):
    error_code: Int16 = field()
    partition: Int32 = field()
    leader_epoch: Int32 = since(1, default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: String = field()
    partitions: Array[EpochEndOffset] = field()


@response(ApiKey.OFFSET_FOR_LEADER_EPOCH)
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Int32 = since(2, ignorable=True)
    topics: Array[OffsetForLeaderTopicResult] = field()
