"""Refuses ConsumerGroupHeartbeat (api 68), version 0.

Listed and refused (KIP-848), as by Apache Kafka 3.9 in ZooKeeper mode, which has the classic protocol only; clients fall back to it.
"""

from ottla.broker.request.context import RequestContext
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def handle_consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerGroupHeartbeatResponse:
    """Refuse."""
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
