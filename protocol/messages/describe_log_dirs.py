"""Declares DescribeLogDirs (api 35): a broker gives the sizes of replicas per log directory (KIP-113).

Version 3 has an error code for the whole answer, version 4 total and usable bytes (KIP-827), version 5 whether
the directory takes no new partitions (KIP-1066).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
    String,
    Struct,
    field,
    request,
    response,
    since,
    struct,
)


@struct
class DescribableLogDirTopic(Struct):
    topic: String = field()
    partitions: Array[Int32] = field()


@request(ApiKey.DESCRIBE_LOG_DIRS)
class DescribeLogDirsRequest(Message):
    topics: NullableArray[DescribableLogDirTopic] = field()


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = field()
    partition_size: Int64 = field()
    offset_lag: Int64 = field()
    is_future_key: Bool = field()


@struct
class DescribeLogDirsTopic(Struct):
    name: String = field()
    partitions: Array[DescribeLogDirsPartition] = field()


@struct
class DescribeLogDirsResult(Struct):
    error_code: Int16 = field()
    log_dir: String = field()
    topics: Array[DescribeLogDirsTopic] = field()
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: Bool = since(5, ignorable=True)


@response(ApiKey.DESCRIBE_LOG_DIRS)
class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = since(3, ignorable=True)
    results: Array[DescribeLogDirsResult] = field()
