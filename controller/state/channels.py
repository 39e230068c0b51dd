"""Declares the channels over which the controller's requests reach brokers, in order for each broker.

`ottla.replication.ports.senders` has the queues; `BrokerChannel` is the port to one broker, `InProcessChannel` the channel to
the broker of this process.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ottla.controller.state.context import LiveBroker
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.replication.ports.senders import Channel, Senders

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
"""In the structure of LeaderAndIsr 7, UpdateMetadata 8 and StopReplica 4."""

ControlResponse: TypeAlias = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse

BrokerChannel: TypeAlias = Channel[ControlRequest, ControlResponse]
"""The connection to one broker. The answer is of the same API as the request."""

ChannelFactory: TypeAlias = Callable[[LiveBroker], BrokerChannel]

BrokerSenders: TypeAlias = Senders[LiveBroker, ControlRequest, ControlResponse]
"""One queue and one task per live broker."""


class Receiver(Protocol):
    """Handles the controller's requests on a broker."""

    async def on_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Become leader or follower of the partitions."""

    async def on_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Update the metadata of the cluster."""

    async def on_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those that the request marks for deletion."""


class InProcessChannel:
    """A channel to the broker of this process, without a socket."""

    def __init__(self, receiver: Receiver, on_metadata_updated: Callable[[], None] = lambda: None) -> None:
        """`on_metadata_updated` is called after each UpdateMetadata that was applied."""
        self._receiver = receiver
        self._on_metadata_updated = on_metadata_updated

    async def send(self, request: ControlRequest) -> ControlResponse:
        """See BrokerChannel."""
        if isinstance(request, LeaderAndIsrRequest):
            return await self._receiver.on_leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return await self._receiver.on_stop_replica(request)
        response = await self._receiver.on_update_metadata(request)
        self._on_metadata_updated()
        return response

    async def close(self) -> None:
        """See BrokerChannel."""
