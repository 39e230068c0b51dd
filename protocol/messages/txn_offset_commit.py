"""Declares TxnOffsetCommit (api 28): a producer commits a group's offsets as part of its transaction (KIP-98).

- 2 carries the leader epoch (KIP-320).
- 3 carries the group's generation and member, which fence (KIP-447).
- 4 may answer TRANSACTION_ABORTABLE, and 5 adds the group to the transaction itself (KIP-890).
- 6 has topic ids in place of names.
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
    field,
    request,
    response,
    since,
    struct,
    until,
)


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: NullableString = field()


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: String = until(5, ignorable=True)
    topic_id: Uuid = since(6, ignorable=True)
    partitions: Array[TxnOffsetCommitRequestPartition] = field()


@request(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitRequest(Message):
    transactional_id: String = field()
    group_id: String = field()
    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    generation_id_or_member_epoch: Int32 = since(3, default=-1)
    member_id: String = since(3)
    group_instance_id: NullableString = since(3, default=None)
    topics: Array[TxnOffsetCommitRequestTopic] = field()


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: String = until(5, ignorable=True)
    topic_id: Uuid = since(6, ignorable=True)
    partitions: Array[TxnOffsetCommitResponsePartition] = field()


@response(ApiKey.TXN_OFFSET_COMMIT)
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: Int32 = field()
    topics: Array[TxnOffsetCommitResponseTopic] = field()
