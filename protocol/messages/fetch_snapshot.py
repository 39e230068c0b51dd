"""FetchSnapshot (api 59): a KRaft follower reads the leader's snapshot (KIP-630). Version 1 names directories (KIP-853). Declared, not
served.
"""

from protocol.api_keys import ApiKey
from protocol.schema.message import (
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Records,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class FetchSnapshotRequestSnapshotId(Struct):
    end_offset: Int64 = field()
    epoch: Int32 = field()


@struct
class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: Int32 = field()
    current_leader_epoch: Int32 = field()
    snapshot_id: FetchSnapshotRequestSnapshotId = field()
    position: Int64 = field()
    replica_directory_id: Uuid = since(1, ignorable=True, tag=0)


@struct
class FetchSnapshotRequestTopicSnapshot(Struct):
    name: String = field()
    partitions: Array[FetchSnapshotRequestPartitionSnapshot] = field()


@request(ApiKey.FETCH_SNAPSHOT)
class FetchSnapshotRequest(Message):
    cluster_id: NullableString = field(default=None, tag=0)
    replica_id: Int32 = field(default=-1)
    max_bytes: Int32 = field(default=2**31 - 1)
    topics: Array[FetchSnapshotRequestTopicSnapshot] = field()


@struct
class FetchSnapshotResponseSnapshotId(Struct):
    end_offset: Int64 = field()
    epoch: Int32 = field()


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: Int32 = field()
    error_code: Int16 = field()
    snapshot_id: FetchSnapshotResponseSnapshotId = field()
    current_leader: LeaderIdAndEpoch = field(tag=0)
    size: Int64 = field()
    position: Int64 = field()
    unaligned_records: Records = field()


@struct
class FetchSnapshotResponseTopicSnapshot(Struct):
    name: String = field()
    partitions: Array[FetchSnapshotResponsePartitionSnapshot] = field()


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: UInt16 = field()


@response(ApiKey.FETCH_SNAPSHOT)
class FetchSnapshotResponse(Message):
    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16 = field()
    topics: Array[FetchSnapshotResponseTopicSnapshot] = field()
    node_endpoints: Array[NodeEndpoint] = since(1, tag=0)
