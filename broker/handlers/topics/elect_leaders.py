"""Handles ElectLeaders (api 43), versions 0-2: preferred leaders (KIP-183), unclean elections from 1 (KIP-460).

Only the active controller elects; any other broker answers NOT_CONTROLLER for each partition. The answer comes when this broker knows the
new leaders, or after the timeout. The answer to a request for all partitions leaves out partitions that needed no election.
"""

from typing import TypeVar

from ottla.broker.request.context import RequestContext
from ottla.controller.errors import AdminTimeout, ControllerError, ElectionNotNeeded, NotController
from ottla.controller.events.leader_elections import ElectionResult
from ottla.coordination.error_map import api_error
from ottla.pauses import each, pause
from ottla.protocol.acls import Operation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from ottla.protocol.topic_partition import TopicPartition

PREFERRED, UNCLEAN = 0, 1
FIRST_VERSION_WITH_ERROR_OF_ALL = 1


_Result = TypeVar("_Result")


async def handle_elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elect leaders, and report the result of each partition."""
    cluster = context.broker.metadata
    partitions: list[TopicPartition] = context.scratch([])
    for topic in request.topic_partitions or ():
        await pause()
        for index in topic.partitions:
            await pause()
            partitions.append(TopicPartition(topic.topic, index))
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response = ElectLeadersResponse(replica_election_results=await _grouped(await _same(partitions, (code, None)), context))
        if context.api_version >= FIRST_VERSION_WITH_ERROR_OF_ALL:
            response.error_code = code
        return response
    if request.election_type not in (PREFERRED, UNCLEAN):
        return await _refused(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    if request.topic_partitions is None:
        for image in list(cluster.topics.values()):
            await pause()
            partitions += [TopicPartition(image.name, index) for index in image.partitions]
    results: dict[TopicPartition, ElectionResult]
    try:
        results = await context.broker.cluster.controller.elect_leaders(partitions, unclean=request.election_type == UNCLEAN)
    except NotController:
        results = await _same(partitions, NotController(""))
    context.scratch(results)
    leaders: dict[TopicPartition, int] = context.scratch({})
    for partition, result in results.items():
        await pause()
        if isinstance(result, int):
            leaders[partition] = result

    left = context.scratch(list(leaders.items()))

    def are_known() -> bool:
        while left:
            partition, leader = left[-1]
            if cluster.leader_of(*partition)[0] != leader:
                return False
            left.pop()  # not checked again: every change of the metadata calls this function
        return True

    if not await context.broker.administration.metadata_waits.until(are_known, request.timeout_ms):
        results |= {partition: AdminTimeout("") for partition, leader in left if cluster.leader_of(*partition)[0] != leader}
    errors: dict[TopicPartition, tuple[ErrorCode, str | None]] = context.scratch({})
    for partition, result in results.items():
        await pause()
        if request.topic_partitions is not None or not isinstance(result, ElectionNotNeeded):
            errors[partition] = _error(result) if isinstance(result, ControllerError) else (ErrorCode.NONE, None)
    return ElectLeadersResponse(replica_election_results=await _grouped(errors, context))


async def _refused(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """The error for each partition of the request, in the order of the request."""
    results = []
    for topic in request.topic_partitions or []:
        partitions = await each(topic.partitions, lambda index: PartitionResult(partition_id=index, error_code=code, error_message=None))
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=partitions))
        await pause()
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _error(result: ControllerError) -> tuple[ErrorCode, str | None]:
    if isinstance(result, ElectionNotNeeded):
        return ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message
    return api_error(result)


async def _same(partitions: list[TopicPartition], result: _Result) -> dict[TopicPartition, _Result]:
    """The same result for all partitions."""
    results: dict[TopicPartition, _Result] = {}
    for partition in partitions:
        results[partition] = result
        await pause()
    return results


async def _grouped(errors: dict[TopicPartition, tuple[ErrorCode, str | None]], context: RequestContext) -> list[ReplicaElectionResult]:
    topics: dict[str, list[PartitionResult]] = context.scratch({})
    for (topic, index), (code, message) in errors.items():
        topics.setdefault(topic, []).append(PartitionResult(partition_id=index, error_code=code, error_message=message))
        await pause()
    return await each(topics.items(), lambda named: ReplicaElectionResult(topic=named[0], partition_result=named[1]))
