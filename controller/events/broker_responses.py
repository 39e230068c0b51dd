"""Evaluates the answers of brokers to the controller's requests: replicas in failed log directories, and deleted logs."""

import logging

from ottla.controller.events.broker_changes import BrokerChanges
from ottla.controller.state.channels import ControlRequest, ControlResponse
from ottla.controller.state.context import Replica
from ottla.controller.state.core import ControllerCore
from ottla.controller.znodes.pauses import slices
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID

logger = logging.getLogger(__name__)


class BrokerResponses:
    """Queues the events that follow from an answer.

    By the time of the event the broker may have restarted or have a new session. Then it was sent its replicas again,
    and an answer of its earlier incarnation is ignored.
    """

    def __init__(self, core: ControllerCore, brokers: BrokerChanges) -> None:
        self._core = core
        self._brokers = brokers

    def on_response(self, broker_id: int, request: ControlRequest, response: ControlResponse) -> None:
        """A broker answered a request."""
        if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
            logger.info("broker %d has restarted and drops %s for its former registration", broker_id, type(request).__name__)
        elif response.error_code != ErrorCode.NONE:
            code = ErrorCode.of(response.error_code)
            is_denied = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            advice = "; give the principal of this broker ClusterAction on the cluster, or name it in super.users" if is_denied else ""
            logger.error("broker %d refused %s with %s%s", broker_id, type(request).__name__, code.name, advice)
        if isinstance(response, LeaderAndIsrResponse):
            self._on_leader_and_isr_response(broker_id, request.broker_epoch, response)
        elif isinstance(response, StopReplicaResponse):
            assert isinstance(request, StopReplicaRequest)
            self._on_stop_replica_response(broker_id, request, response)

    def _is_of_this_life(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._core.context.brokers.get(broker_id)
        return broker is not None and broker.epoch == broker_epoch

    def _on_leader_and_isr_response(self, broker_id: int, broker_epoch: int, response: LeaderAndIsrResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            return

        async def on_storage_errors() -> None:
            if self._is_of_this_life(broker_id, broker_epoch):
                failed, served = await self._failed_and_served(response)
                await self._brokers.on_storage_errors(broker_id, failed, served)

        errors = (partition.error_code for topic in response.topics for partition in topic.partition_errors)
        if self._core.context.offline_replicas or ErrorCode.KAFKA_STORAGE_ERROR in errors:
            self._core.put("LeaderAndIsrResponse", on_storage_errors)

    async def _failed_and_served(self, response: LeaderAndIsrResponse) -> tuple[set[TopicPartition], set[TopicPartition]]:
        topic_names = self._core.context.topic_names
        failed: set[TopicPartition] = set()
        served: set[TopicPartition] = set()
        for topic in response.topics:
            for some in slices(topic.partition_errors):
                for partition in some:
                    # A topic without an id is identified by name, in the versions of that time and by the broker of
                    # this process.
                    name = partition.topic_name if topic.topic_id == ZERO_UUID else topic_names.get(topic.topic_id)
                    if name not in self._core.context.assignments:
                        continue
                    if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                        failed.add(TopicPartition(name, partition.partition_index))
                    elif partition.error_code == ErrorCode.NONE:
                        served.add(TopicPartition(name, partition.partition_index))
                await self._core.pause()
        return failed, served

    def _on_stop_replica_response(self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse) -> None:
        if not any(state.delete_partition for topic in request.topic_states for state in topic.partition_states):
            return

        async def on_topic_deletion_answered() -> None:
            if not self._is_of_this_life(broker_id, request.broker_epoch):
                return
            await self._core.deletion.on_stop_replica_errors(broker_id, await self._deletion_errors(broker_id, request, response))
            batch = self._core.batch()
            await self._core.deletion.resume(batch)
            await batch.send()

        self._core.put("TopicDeletionStopReplicaResponse", on_topic_deletion_answered)

    async def _deletion_errors(self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse) -> dict[Replica, int]:
        """The error codes of the replicas that the broker had to delete."""
        answered: dict[TopicPartition, int] = {}
        for some in slices(response.partition_errors):
            answered.update((TopicPartition(each.topic_name, each.partition_index), each.error_code) for each in some)
            await self._core.pause()
        errors: dict[Replica, int] = {}
        for topic in request.topic_states:
            for states in slices(topic.partition_states):
                for state in states:
                    if state.delete_partition:
                        partition = TopicPartition(topic.topic_name, state.partition_index)
                        error = response.error_code or answered.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                        errors[Replica(partition, broker_id)] = error
                await self._core.pause()
        return errors
