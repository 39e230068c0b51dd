"""fetch (api 1)."""

from protocol.api_keys import ApiKey
from protocol.schema import (
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
    Uuid,
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class ReplicaState:
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


@struct
class FetchPartition:
    partition: Int32 = field()
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64 = field()
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32 = field()
    replica_directory_id: Uuid = since(17, ignorable=True, tag=0)


@struct
class FetchTopic:
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: Array[FetchPartition] = field()


@struct
class ForgottenTopic:
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: Array[Int32] = field()


@request(ApiKey.FETCH, versions=(0, 17), flexible=12)
class FetchRequest(Message):
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
class EpochEndOffset:
    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction:
    producer_id: Int64 = field()
    first_offset: Int64 = field()


@struct
class PartitionData:
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
class FetchableTopicResponse:
    topic: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: Array[PartitionData] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: NullableString = field(default=None)


@response(ApiKey.FETCH, versions=(0, 17), flexible=12)
class FetchResponse(Message):
    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = since(7, ignorable=True)
    session_id: Int32 = since(7)
    responses: Array[FetchableTopicResponse] = field()
    node_endpoints: Array[NodeEndpoint] = since(16, tag=0)
