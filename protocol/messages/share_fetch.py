"""Declares ShareFetch (api 78): a member of a share group acquires records and acknowledges those that it has processed (KIP-932).

Version 2 can renew a lock (KIP-1222), and has a mode for the number of acquired records (KIP-1206).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
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
)


@struct
class AcknowledgementBatch(Struct):
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    acknowledge_types: Array[Int8] = field()


@struct
class FetchPartition(Struct):
    partition_index: Int32 = field()
    acknowledgement_batches: Array[AcknowledgementBatch] = field()


@struct
class FetchTopic(Struct):
    topic_id: Uuid = field()
    partitions: Array[FetchPartition] = field()


@struct
class ForgottenTopic(Struct):
    topic_id: Uuid = field()
    partitions: Array[Int32] = field()


@request(ApiKey.SHARE_FETCH)
class ShareFetchRequest(Message):
    group_id: NullableString = field(default=None)
    member_id: NullableString = field()
    share_session_epoch: Int32 = field()
    max_wait_ms: Int32 = field()
    min_bytes: Int32 = field()
    max_bytes: Int32 = field(default=2**31 - 1)
    max_records: Int32 = field()
    batch_size: Int32 = field()
    share_acquire_mode: Int8 = since(2, ignorable=True)
    is_renew_ack: Bool = since(2)
    topics: Array[FetchTopic] = field()
    forgotten_topics_data: Array[ForgottenTopic] = field()


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class AcquiredRecords(Struct):
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    delivery_count: Int16 = field()


@struct
class PartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    acknowledge_error_code: Int16 = field()
    acknowledge_error_message: NullableString = field(default=None)
    current_leader: LeaderIdAndEpoch = field()
    records: Records = field()
    acquired_records: Array[AcquiredRecords] = field()


@struct
class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionData] = field()


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: NullableString = field(default=None)


@response(ApiKey.SHARE_FETCH)
class ShareFetchResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field()
    responses: Array[ShareFetchableTopicResponse] = field()
    node_endpoints: Array[NodeEndpoint] = field()
