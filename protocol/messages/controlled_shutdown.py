"""ControlledShutdown (api 7): a broker asks the controller to move its leaderships away; the answer lists what could not be moved.

Version 0 alone of all requests has a header without a client id. 2 adds the broker epoch that fences (KIP-380).
"""

from protocol.api_keys import ApiKey
from protocol.schema.message import Array, Int16, Int32, Int64, Message, String, Struct, field, request, response, since, struct


@request(ApiKey.CONTROLLED_SHUTDOWN)
class ControlledShutdownRequest(Message):
    broker_id: Int32 = field()
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)


@struct
class RemainingPartition(Struct):
    topic_name: String = field()
    partition_index: Int32 = field()


@response(ApiKey.CONTROLLED_SHUTDOWN)
class ControlledShutdownResponse(Message):
    error_code: Int16 = field()
    remaining_partitions: Array[RemainingPartition] = field()
