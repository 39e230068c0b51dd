"""Handles the controller's requests on this broker, from the controller in this process or over the network.

The replica manager does the work. This module reads the configuration of a topic before its logs are created, and notifies operations that
wait for the metadata. An internal error becomes an error response, as over the network, so that the controller's queue to this broker
continues.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.errors import StoreError
from ottla.controller.state.core import LARGE, WhileLarge
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.replication.control.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class ControlRequests:
    """The `Receiver` of `ottla.controller.state.channels`."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        dynamic_config: DynamicConfig,
        metadata_waits: MetadataWaits,
        while_large: WhileLarge = nullcontext,
        on_other_controller: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`on_other_controller` are called after the first UpdateMetadata of another controller, or for another incarnation of this broker.

        `while_large` is entered while a request for very many partitions is handled, which makes long-lived objects,
        or deletes logs one by one."""
        self._while_large = while_large
        self._replica_manager = replica_manager
        self._dynamic_config = dynamic_config
        self._metadata_waits = metadata_waits
        self._sender = (-1, -1)
        self._on_other_controller = on_other_controller

    async def on_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Become leader or follower of the partitions."""
        named = {topic.topic_name for topic in request.topic_states}
        named.update(state.topic_name for state in request.ungrouped_partition_states)
        new = [topic for topic in named if topic not in self._replica_manager.partitions]
        if new:
            try:
                await self._dynamic_config.refresh(new)
            except StoreError as error:
                logger.warning("the configurations of %s cannot be read (%s); the last known ones are used", ", ".join(new), error)
        try:
            with self._as_large(request):
                return await self._replica_manager.on_leader_and_isr(request)
        except Exception:
            _log_failure(request)
            return LeaderAndIsrResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    async def on_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Update the metadata of the cluster."""
        try:
            with self._as_large(request):
                response = await self._replica_manager.on_update_metadata(request)
        except Exception:
            _log_failure(request)
            return UpdateMetadataResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        self._metadata_waits.notify()
        sender = (request.controller_epoch, request.broker_epoch)
        if sender != self._sender and response.error_code == ErrorCode.NONE:
            self._sender = sender
            for listener in self._on_other_controller:
                listener()
        return response

    async def on_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those that the request marks for deletion."""
        try:
            with self._as_large(request):
                return await self._replica_manager.on_stop_replica(request)
        except Exception:
            _log_failure(request)
            return StopReplicaResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    def _as_large(self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> AbstractContextManager[None]:
        partitions = sum(len(topic.partition_states) for topic in request.topic_states)
        return self._while_large() if partitions >= LARGE else nullcontext()


def _log_failure(request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> None:
    logger.exception("%s of controller %d (epoch %d) failed", type(request).__name__, request.controller_id, request.controller_epoch)
