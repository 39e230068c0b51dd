"""Declares AlterReplicaLogDirs (api 34): a client moves replicas between the log directories of one broker (KIP-113)."""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int16, Int32, Message, String, Struct, field, request, response, struct


@struct
class AlterReplicaLogDirTopic(Struct):
    name: String = field()
    partitions: Array[Int32] = field()


@struct
class AlterReplicaLogDir(Struct):
    path: String = field()
    topics: Array[AlterReplicaLogDirTopic] = field()


@request(ApiKey.ALTER_REPLICA_LOG_DIRS)
class AlterReplicaLogDirsRequest(Message):
    dirs: Array[AlterReplicaLogDir] = field()


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String = field()
    partitions: Array[AlterReplicaLogDirPartitionResult] = field()


@response(ApiKey.ALTER_REPLICA_LOG_DIRS)
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: Int32 = field()
    results: Array[AlterReplicaLogDirTopicResult] = field()
