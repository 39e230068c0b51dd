"""Declares Fetch (api 1): consumers and followers read batches of partitions, and wait up to `max_wait_ms` for `min_bytes`.

- 3 limits the whole response, and makes the order of partitions matter (KIP-74).
- 4 is for transactional readers (KIP-98).
- 5 carries the follower's log start offset (KIP-107).
- 7 has incremental sessions (KIP-227).
- 9 fences by the leader epoch (KIP-320).
- 10 allows zstd (KIP-110).
- 11 reads from the closest replica (KIP-392).
- 12 detects divergence by the last fetched epoch (KIP-595).
- 13 has topic ids in place of names (KIP-516).
- 14 may answer that an offset is in tiered storage (KIP-405).
- 15 moves the replica id into `replica_state`, beside the replica's epoch (KIP-903).
- 16 names new leaders (KIP-951).
- 17 is for KRaft (KIP-853).
- 18 tells the leader the high watermark of the follower (KIP-1166).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
    NullableString,
    Records,
    String,
    Struct,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class ReplicaState(Struct):
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


@struct
class FetchPartition(Struct):
    """`log_start_offset` is the follower's own; -1 from consumers."""

    partition: Int32 = field()
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64 = field()
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32 = field()
    replica_directory_id: Uuid = since(17, ignorable=True, tag=0)
    high_watermark: Int64 = since(18, default=2**63 - 1, ignorable=True, tag=1)


@struct
class FetchTopic(Struct):
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: Array[FetchPartition] = field()


@struct
class ForgottenTopic(Struct):
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: Array[Int32] = field()


@request(ApiKey.FETCH)
class FetchRequest(Message):
    """Session epoch -1 is for no session, 0 begins a session, above 0 continues it. `replica_id` is -1 for consumers."""

    cluster_id: NullableString = since(12, default=None, ignorable=True, tag=0)
    replica_id: Int32 = until(14, default=-1)
    replica_state: ReplicaState = since(15, tag=1)
    max_wait_ms: Int32 = field()
    min_bytes: Int32 = field()
    max_bytes: Int32 = since(3, default=2**31 - 1, ignorable=True)
    isolation_level: Int8 = since(4, ignorable=True)
    session_id: Int32 = since(7, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: Array[FetchTopic] = field()
    forgotten_topics_data: Array[ForgottenTopic] = since(7)
    rack_id: String = since(11, ignorable=True)


@struct
class EpochEndOffset(Struct):
    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class SnapshotId(Struct):
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction(Struct):
    producer_id: Int64 = field()
    first_offset: Int64 = field()


@struct
class PartitionData(Struct):
    """`preferred_read_replica` is -1 when the reader should read from this broker."""

    partition_index: Int32 = field()
    error_code: Int16 = field()
    high_watermark: Int64 = field()
    last_stable_offset: Int64 = since(4, default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = since(12, tag=0)
    current_leader: LeaderIdAndEpoch = since(12, tag=1)
    snapshot_id: SnapshotId = since(12, tag=2)
    aborted_transactions: NullableArray[AbortedTransaction] = since(4, ignorable=True)
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records = field()


@struct
class FetchableTopicResponse(Struct):
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: Array[PartitionData] = field()


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: NullableString = field(default=None)


@response(ApiKey.FETCH)
class FetchResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = since(7, ignorable=True)
    session_id: Int32 = since(7)
    responses: Array[FetchableTopicResponse] = field()
    node_endpoints: Array[NodeEndpoint] = since(16, tag=0)
