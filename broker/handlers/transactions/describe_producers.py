"""Handles DescribeProducers (api 61), version 0.

KIP-664: a replica, leader or not, lists the idempotent and transactional producers of its log.
"""

from ottla.broker.request.context import RequestContext
from ottla.broker.request.repeats import Repeats
from ottla.controller.errors import InvalidTopicName
from ottla.controller.znodes.topic_names import validate_topic_name
from ottla.coordination.error_map import api_error, error_code
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.replication.errors import ReplicationError
from ottla.storage.errors import StorageError
from ottla.storage.producers.state import ProducerStateEntry


async def handle_describe_producers(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    """Describe the producers of each asked partition that this broker hosts."""
    response = DescribeProducersResponse()
    repeats = Repeats(context)
    for asked in request.topics:
        of_topic = _refusal(asked.name, context)
        topic = TopicResponse(name=asked.name)
        for index in asked.partition_indexes:
            refused = of_topic
            if repeats.are_too_many((asked.name, index) if of_topic is None else asked.name):
                refused = (ErrorCode.INVALID_REQUEST if of_topic is None else of_topic[0]), None  # a text may quote a long name
            if refused is None:
                topic.partitions.append(await _partition(asked.name, index, context))
            else:
                code, message = refused
                topic.partitions.append(PartitionResponse(partition_index=index, error_code=code, error_message=message))
            await pause()
        response.topics.append(topic)
        await pause()
    return response


def _refusal(topic: str, context: RequestContext) -> tuple[ErrorCode, str | None] | None:
    try:
        validate_topic_name(topic)
    except InvalidTopicName as error:
        return api_error(error)
    if not context.is_authorized(Operation.READ, ResourceType.TOPIC, topic):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic not in context.broker.metadata.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        return None
    return code, code.message


async def _partition(topic: str, index: int, context: RequestContext) -> PartitionResponse:
    response = PartitionResponse(partition_index=index)
    try:
        log = context.broker.data.replica_manager.partition_or_raise(topic, index).check_leader(or_follower=True)
    except (ReplicationError, StorageError) as error:
        response.error_code = error_code(error)
        return response
    response.active_producers = await each(log.active_producers(), _producer)
    return response


def _producer(entry: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )
