"""Handles AlterPartition (api 56), versions 0-3. KIP-497: the controller changes the ISR of a partition for its leader.

Topic ids from 2 (KIP-841), and INELIGIBLE_REPLICA, which is OPERATION_NOT_ATTEMPTED in older versions. Broker epochs of the members from 3
(KIP-903); they have no effect in ZooKeeper mode.
"""

from ottla.broker.request.context import RequestContext
from ottla.controller.errors import BrokerIdNotRegistered, ControllerError, IneligibleReplica, StoreError
from ottla.controller.events.isr_changes import IsrChange, IsrResult
from ottla.coordination.error_map import error_code
from ottla.pauses import pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from ottla.protocol.topic_partition import TopicPartition

FIRST_VERSION_BY_TOPIC_ID = 2
FIRST_VERSION_WITH_BROKER_EPOCHS = 3


async def handle_alter_partition(request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    """Pass the proposals to the controller. The result for each is the new state of the partition, or an error."""
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    controller = context.broker.cluster.controller
    by_id = context.api_version >= FIRST_VERSION_BY_TOPIC_ID
    try:
        if by_id and not all(topic.topic_id in controller.context.topic_names for topic in request.topics):
            # A controller that is taking over may not know all topics yet, and this call raises then. UNKNOWN_TOPIC_ID would be wrong: a
            # leader takes it as final, and proposes nothing until the next LeaderAndIsr.
            await controller.alter_isr(request.broker_id, request.broker_epoch, {})
        return await _alter(request, context, by_id=by_id)
    except BrokerIdNotRegistered:
        return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    except (ControllerError, StoreError) as error:  # a leader asks again, with growing pauses and one line in the log
        return AlterPartitionResponse(error_code=error_code(error))


async def _alter(request: AlterPartitionRequest, context: RequestContext, *, by_id: bool) -> AlterPartitionResponse:
    controller = context.broker.cluster.controller
    # All of them before the first pause: a controller that takes over meanwhile may not know all topics again.
    names = [controller.context.topic_names.get(topic.topic_id) if by_id else topic.topic_name for topic in request.topics]
    response = AlterPartitionResponse()
    changes: dict[TopicPartition, IsrChange] = {}
    answers: list[tuple[TopicPartition, AlterPartitionResponsePartitionData]] = []
    for topic, name in zip(request.topics, names, strict=True):
        answered = AlterPartitionResponseTopicData(topic_name=topic.topic_name, topic_id=topic.topic_id)
        response.topics.append(answered)
        for proposal in topic.partitions:
            await pause()
            answer = AlterPartitionResponsePartitionData(partition_index=proposal.partition_index)
            answered.partitions.append(answer)
            if name is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                partition = TopicPartition(name, proposal.partition_index)
                changes[partition] = _change(proposal, topic.topic_id, context.api_version)
                answers.append((partition, answer))
    results = await controller.alter_isr(request.broker_id, request.broker_epoch, changes)
    for partition, answer in answers:
        await pause()
        _fill(answer, results[partition], by_id=by_id)
    return response


def _change(proposal: AlterPartitionRequestPartitionData, topic_id: bytes, version: int) -> IsrChange:
    with_epochs = version >= FIRST_VERSION_WITH_BROKER_EPOCHS
    isr = tuple(member.broker_id for member in proposal.new_isr_with_epochs) if with_epochs else tuple(proposal.new_isr)
    return IsrChange(proposal.leader_epoch, isr, proposal.partition_epoch, proposal.leader_recovery_state, topic_id)


def _fill(answer: AlterPartitionResponsePartitionData, result: IsrResult, *, by_id: bool) -> None:
    if isinstance(result, IneligibleReplica) and not by_id:
        answer.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
    elif isinstance(result, ControllerError | StoreError):
        answer.error_code = error_code(result)
    else:
        state = result.state
        answer.leader_id = state.leader
        answer.leader_epoch = state.leader_epoch
        answer.isr = list(state.isr)
        answer.leader_recovery_state = state.leader_recovery_state
        answer.partition_epoch = result.partition_epoch
