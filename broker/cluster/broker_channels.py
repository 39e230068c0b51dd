"""Connects this broker's controller with other brokers, each over its own connection, in the versions that
`inter.broker.protocol.version` selects.

Made by `ottla.broker.cluster.cluster_wiring` for `ottla.replication.ports.senders.Senders`, which sends one request at a
time, in order, and repeats requests that could not be delivered (ConnectionError). As in Apache Kafka's
ControllerChannelManager, the client id is the controller's broker id, and ApiVersions is not sent. The broker of this
process is called without a socket.

Older versions have other structures: up to LeaderAndIsr 1 and UpdateMetadata 4 partitions are not grouped by topic. Up
to StopReplica 2 a request deletes all of its partitions or none, so one request becomes two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from ottla.config.listeners import SecurityProtocol
from ottla.config.schema.metadata_version import is_at_least
from ottla.controller.state.channels import BrokerChannel, ControlRequest, ControlResponse, InProcessChannel, Receiver
from ottla.controller.state.context import LiveBroker
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse, LeaderAndIsrTopicError
from ottla.protocol.messages.stop_replica import StopReplicaPartitionV0, StopReplicaRequest, StopReplicaResponse, StopReplicaTopicV1
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.replication.ports.peer import Connect, Peer, PeerAddress

_LEADER_AND_ISR = ((7, "3.4-IV0"), (6, "3.2-IV0"), (5, "2.8-IV1"), (4, "2.4-IV1"), (3, "2.4-IV0"), (2, "2.2-IV0"), (1, "1.0-IV0"))
_UPDATE_METADATA = (
    (8, "3.4-IV0"),
    (7, "2.8-IV1"),
    (6, "2.4-IV1"),
    (5, "2.2-IV0"),
    (4, "1.0-IV0"),
    (3, "0.10.2-IV0"),
    (2, "0.10.0-IV1"),
    (1, "0.9.0"),
)
_STOP_REPLICA = ((4, "3.4-IV0"), (3, "2.6-IV0"), (2, "2.4-IV1"), (1, "2.2-IV0"))

LEADER_AND_ISR_BY_TOPIC = 2
LEADER_AND_ISR_ERRORS_BY_TOPIC = 5
LEADER_AND_ISR_WITH_RECOVERY = 6
UPDATE_METADATA_BY_TOPIC = 5
STOP_REPLICA_BY_TOPIC = 1
STOP_REPLICA_WITH_STATES = 3


class ControlVersions(NamedTuple):
    """The versions of a controller's requests."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


def control_versions(inter_broker_protocol_version: str) -> ControlVersions:
    """The versions that brokers of that protocol version support; the configuration makes brokers of different releases
    agree."""

    def chosen(table: tuple[tuple[int, str], ...]) -> int:
        return next((version for version, since in table if is_at_least(inter_broker_protocol_version, since)), 0)

    return ControlVersions(chosen(_LEADER_AND_ISR), chosen(_UPDATE_METADATA), chosen(_STOP_REPLICA))


class BrokerChannels:
    """Makes the channels (`ottla.controller.state.channels.ChannelFactory`)."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        receiver: Receiver,
        connect: Connect,
        listener: str,
        versions: ControlVersions,
        timeout_ms: int,
    ) -> None:
        """`listener` is the listener for the controller's requests, `timeout_ms` is `controller.socket.timeout.ms`."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._receiver = receiver
        self._connect = connect
        self._listener = listener
        self._versions = versions
        self._timeout_ms = timeout_ms

    def __call__(self, broker: LiveBroker) -> BrokerChannel:
        """The channel to a registered broker."""
        if broker.broker_id == self._broker_id and broker.epoch == self._broker_epoch():
            return InProcessChannel(self._receiver)
        address = address_of(broker, self._listener)
        peer = self._connect(lambda: address, str(self._broker_id))
        return PeerChannel(peer, self._versions, self._timeout_ms)


def address_of(broker: LiveBroker, listener: str) -> PeerAddress | None:
    """The address of a registered broker at that listener; None when it has no such listener."""
    for endpoint in broker.registration.endpoints:
        if endpoint.listener == listener:
            return PeerAddress(endpoint.host, endpoint.port)
    return None


class PeerChannel:
    """The channel to another broker."""

    def __init__(self, peer: Peer, versions: ControlVersions, timeout_ms: int) -> None:
        self._peer = peer
        self._versions = versions
        self._timeout_ms = timeout_ms

    async def send(self, request: ControlRequest) -> ControlResponse:
        """See BrokerChannel."""
        if isinstance(request, LeaderAndIsrRequest):
            return await self._send_leader_and_isr(request)
        if isinstance(request, UpdateMetadataRequest):
            return await self._send_update_metadata(request)
        return await self._send_stop_replica(request)

    async def close(self) -> None:
        """See BrokerChannel."""
        await self._peer.close()

    async def _send_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        version = self._versions.leader_and_isr
        response = await self._peer.request(
            ApiKey.LEADER_AND_ISR, version, leader_and_isr_in(version, request), timeout_ms=self._timeout_ms
        )
        return _by_topic(request, cast("LeaderAndIsrResponse", response), version)

    async def _send_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        version = self._versions.update_metadata
        message = update_metadata_in(version, request)
        return cast(
            "UpdateMetadataResponse", await self._peer.request(ApiKey.UPDATE_METADATA, version, message, timeout_ms=self._timeout_ms)
        )

    async def _send_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        version = self._versions.stop_replica
        whole = StopReplicaResponse()
        for message in stop_replica_in(version, request):
            response = await self._peer.request(ApiKey.STOP_REPLICA, version, message, timeout_ms=self._timeout_ms)
            assert isinstance(response, StopReplicaResponse)
            whole.partition_errors.extend(response.partition_errors)
            if response.error_code != ErrorCode.NONE:
                whole.error_code = response.error_code
                break
        return whole


def leader_and_isr_in(version: int, request: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
    """The request in the structure of that version. Before versions with a recovery state, a recovering leader is sent
    as a normal leader."""
    if version >= LEADER_AND_ISR_WITH_RECOVERY:
        return request
    for topic in request.topic_states:
        for state in topic.partition_states:
            state.leader_recovery_state = 0
    if version >= LEADER_AND_ISR_BY_TOPIC:
        return request
    return LeaderAndIsrRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        ungrouped_partition_states=[state for topic in request.topic_states for state in topic.partition_states],
        live_leaders=request.live_leaders,
    )


def update_metadata_in(version: int, request: UpdateMetadataRequest) -> UpdateMetadataRequest:
    """The request in the structure of that version."""
    if version == 0:
        for broker in request.live_brokers:
            plaintext = next((each for each in broker.endpoints if each.security_protocol == SecurityProtocol.PLAINTEXT), None)
            if plaintext is not None:
                broker.v0_host, broker.v0_port = plaintext.host, plaintext.port
    if version >= UPDATE_METADATA_BY_TOPIC:
        return request
    return UpdateMetadataRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        ungrouped_partition_states=[state for topic in request.topic_states for state in topic.partition_states],
        live_brokers=request.live_brokers,
    )


def stop_replica_in(version: int, request: StopReplicaRequest) -> list[StopReplicaRequest]:
    """The requests in the structure of that version: first the partitions to stop only, then those to delete."""
    if version >= STOP_REPLICA_WITH_STATES:
        return [request]
    requests = []
    for delete in (False, True):
        indexes = {
            topic.topic_name: [state.partition_index for state in topic.partition_states if state.delete_partition is delete]
            for topic in request.topic_states
        }
        indexes = {topic: found for topic, found in indexes.items() if found}
        if indexes:
            message = StopReplicaRequest(
                controller_id=request.controller_id,
                controller_epoch=request.controller_epoch,
                broker_epoch=request.broker_epoch,
                delete_partitions=delete,
            )
            if version >= STOP_REPLICA_BY_TOPIC:
                message.topics = [StopReplicaTopicV1(name=topic, partition_indexes=found) for topic, found in indexes.items()]
            else:
                message.ungrouped_partitions = [
                    StopReplicaPartitionV0(topic_name=topic, partition_index=index) for topic, found in indexes.items() for index in found
                ]
            requests.append(message)
    return requests


def _by_topic(request: LeaderAndIsrRequest, response: LeaderAndIsrResponse, version: int) -> LeaderAndIsrResponse:
    """The errors by topic id, as the controller reads them; versions before 5 have topic names."""
    if version < LEADER_AND_ISR_ERRORS_BY_TOPIC:
        ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
        topics: dict[bytes, LeaderAndIsrTopicError] = {}
        for error in response.partition_errors:
            topic_id = ids.get(error.topic_name)
            if topic_id is not None:
                topics.setdefault(topic_id, LeaderAndIsrTopicError(topic_id=topic_id)).partition_errors.append(error)
        response.topics = list(topics.values())
    return response
