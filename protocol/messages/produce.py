"""Declares Produce (api 0): a producer appends record batches to partitions. With acks=0 there is no answer.

Versions up to 2 allow message sets of the old formats. Versions 1, 2, 4 and 6 only change the errors and formats that the client knows.

- 3 allows exactly one batch of format 2 per partition, and has a transactional id (KIP-98).
- 5 answers the log start offset.
- 7 allows zstd (KIP-110).
- 8 names the refused records and the reasons (KIP-467).
- 10 names the new leader beside NOT_LEADER_OR_FOLLOWER (KIP-951).
- 11 may answer TRANSACTION_ABORTABLE, and 12 adds the partition to the transaction itself (KIP-890).
- 13 has topic ids in place of names (KIP-516).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
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
    until,
)


@struct
class PartitionProduceData(Struct):
    index: Int32 = field()
    records: Records = field()


@struct
class TopicProduceData(Struct):
    name: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partition_data: Array[PartitionProduceData] = field()


@request(ApiKey.PRODUCE)
class ProduceRequest(Message):
    """`acks` is 0, 1 or -1 (all in-sync replicas)."""

    transactional_id: NullableString = since(3, default=None)
    acks: Int16 = field()
    timeout_ms: Int32 = field()
    topic_data: Array[TopicProduceData] = field()


@struct
class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = field()
    batch_index_error_message: NullableString = field(default=None)


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class PartitionProduceResponse(Struct):
    index: Int32 = field()
    error_code: Int16 = field()
    base_offset: Int64 = field()
    log_append_time_ms: Int64 = since(2, default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: Array[BatchIndexAndErrorMessage] = since(8, ignorable=True)
    error_message: NullableString = since(8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = since(10, tag=0)


@struct
class TopicProduceResponse(Struct):
    name: String = until(12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partition_responses: Array[PartitionProduceResponse] = field()


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = field()
    host: String = field()
    port: Int32 = field()
    rack: NullableString = field(default=None)


@response(ApiKey.PRODUCE)
class ProduceResponse(Message):
    responses: Array[TopicProduceResponse] = field()
    throttle_time_ms: Int32 = since(1, ignorable=True)
    node_endpoints: Array[NodeEndpoint] = since(10, tag=0)
