"""Declares the metadata of remote segments as records of `__remote_log_metadata` (KIP-405).

A value begins with a byte 1, the API key of its message, and the version, both as unsigned varints. Key 0 adds a copy of a segment, 1
changes its state, 2 tells that a partition is being deleted. Key 3, a copy without its partition, is not declared: no release writes it.
"""

from ottla.protocol.schema.message import (
    Array,
    Int8,
    Int32,
    Int64,
    Message,
    NullableBytes,
    String,
    Struct,
    Uuid,
    data,
    field,
    struct,
)


@struct
class TopicIdPartitionEntry(Struct):
    name: String = field()
    id: Uuid = field()
    partition: Int32 = field()


@struct
class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = field()
    id: Uuid = field()


@struct
class SegmentLeaderEpochEntry(Struct):
    leader_epoch: Int32 = field()
    offset: Int64 = field()


@data(versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataRecord(Message):
    remote_log_segment_id: RemoteLogSegmentIdEntry = field()
    start_offset: Int64 = field()
    end_offset: Int64 = field()
    broker_id: Int32 = field()
    max_timestamp_ms: Int64 = field()
    event_timestamp_ms: Int64 = field()
    segment_leader_epochs: Array[SegmentLeaderEpochEntry] = field()
    segment_size_in_bytes: Int32 = field()
    custom_metadata: NullableBytes = field(default=None)
    remote_log_segment_state: Int8 = field()


@data(versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataUpdateRecord(Message):
    remote_log_segment_id: RemoteLogSegmentIdEntry = field()
    broker_id: Int32 = field()
    event_timestamp_ms: Int64 = field()
    custom_metadata: NullableBytes = field(default=None)
    remote_log_segment_state: Int8 = field()


@data(versions=(0, 0), flexible=0)
class RemotePartitionDeleteMetadataRecord(Message):
    topic_id_partition: TopicIdPartitionEntry = field()
    broker_id: Int32 = field()
    event_timestamp_ms: Int64 = field()
    remote_partition_delete_state: Int8 = field()
