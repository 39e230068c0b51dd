"""Declares WriteTxnMarkers (api 27): a transaction coordinator has markers written to the partitions of ended transactions (KIP-98).

Version 2 has the version of the transaction, so that the leader can check its epoch (KIP-1228).
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
    String,
    Struct,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class WritableTxnMarkerTopic(Struct):
    name: String = field()
    partition_indexes: Array[Int32] = field()


@struct
class WritableTxnMarker(Struct):
    """`transaction_result` is true for a commit."""

    producer_id: Int64 = field()
    producer_epoch: Int16 = field()
    transaction_result: Bool = field()
    topics: Array[WritableTxnMarkerTopic] = field()
    coordinator_epoch: Int32 = field()
    transaction_version: Int8 = since(2, ignorable=True)


@request(ApiKey.WRITE_TXN_MARKERS)
class WriteTxnMarkersRequest(Message):
    markers: Array[WritableTxnMarker] = field()


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: String = field()
    partitions: Array[WritableTxnMarkerPartitionResult] = field()


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = field()
    topics: Array[WritableTxnMarkerTopicResult] = field()


@response(ApiKey.WRITE_TXN_MARKERS)
class WriteTxnMarkersResponse(Message):
    markers: Array[WritableTxnMarkerResult] = field()
