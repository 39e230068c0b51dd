"""Refuses ConsumerGroupDescribe (api 69), version 0.

Listed and refused (KIP-848), as by Apache Kafka 3.9 in ZooKeeper mode.
"""

from ottla.broker.request.context import RequestContext
from ottla.broker.request.turns import Steps
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedGroup


def handle_consumer_group_describe(request: ConsumerGroupDescribeRequest, context: RequestContext) -> Steps[ConsumerGroupDescribeResponse]:
    """Refuse."""
    response = ConsumerGroupDescribeResponse()
    for group_id in request.group_ids:
        response.groups.append(DescribedGroup(error_code=ErrorCode.UNSUPPORTED_VERSION, group_id=group_id))
        yield
    return response
