"""AssignReplicasToDirs (api 73, KIP-858): a broker of a KRaft cluster says which directory holds which replica. Declared, not served."""

from protocol.api_keys import ApiKey
from protocol.schema.message import Array, Int16, Int32, Int64, Message, Struct, Uuid, field, request, response, struct


@struct
class AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: Int32 = field()


@struct
class AssignReplicasToDirsRequestTopicData(Struct):
    topic_id: Uuid = field()
    partitions: Array[AssignReplicasToDirsRequestPartitionData] = field()


@struct
class AssignReplicasToDirsRequestDirectoryData(Struct):
    id: Uuid = field()
    topics: Array[AssignReplicasToDirsRequestTopicData] = field()


@request(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
class AssignReplicasToDirsRequest(Message):
    broker_id: Int32 = field()
    broker_epoch: Int64 = field(default=-1)
    directories: Array[AssignReplicasToDirsRequestDirectoryData] = field()


@struct
class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: Uuid = field()
    partitions: Array[AssignReplicasToDirsResponsePartitionData] = field()


@struct
class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: Uuid = field()
    topics: Array[AssignReplicasToDirsResponseTopicData] = field()


@response(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
class AssignReplicasToDirsResponse(Message):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    directories: Array[AssignReplicasToDirsResponseDirectoryData] = field()
