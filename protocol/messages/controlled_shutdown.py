"""Declares ControlledShutdown (api 7): a broker asks the controller to move its leaderships to other brokers.

The answer lists the partitions that could not be moved. Version 0 is the only request whose header has no client id. Version 2 adds the
broker epoch, which fences (KIP-380).
"""

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Array, Int16, Int32, Int64, Message, String, Struct, field, request, response, since, struct


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
