"""Declares ShareAcknowledge (api 79): a member of a share group acknowledges records that it has processed (KIP-932).

Version 2 can renew a lock (KIP-1222).
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
class AcknowledgePartition(Struct):
    partition_index: Int32 = field()
    acknowledgement_batches: Array[AcknowledgementBatch] = field()


@struct
class AcknowledgeTopic(Struct):
    topic_id: Uuid = field()
    partitions: Array[AcknowledgePartition] = field()


@request(ApiKey.SHARE_ACKNOWLEDGE)
class ShareAcknowledgeRequest(Message):
    group_id: NullableString = field(default=None)
    member_id: NullableString = field()
    share_session_epoch: Int32 = field()
    is_renew_ack: Bool = since(2)
    topics: Array[AcknowledgeTopic] = field()


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class PartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    current_leader: LeaderIdAndEpoch = field()


@struct
class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = field()
    partitions: Array[PartitionData] = field()


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: NullableString = field(default=None)


@response(ApiKey.SHARE_ACKNOWLEDGE)
class ShareAcknowledgeResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: NullableString = field(default=None)
    acquisition_lock_timeout_ms: Int32 = since(2, ignorable=True)
    responses: Array[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: Array[NodeEndpoint] = field()
