"""Sends the controller's requests to brokers: one channel for each broker, one request in flight on each, in order.

`BrokerChannel` is the port; `InProcessChannel` calls the broker of the same process. `BrokerSenders` gives every broker
its own queue, so that a slow broker delays no other: as in Apache Kafka, there is no barrier between brokers.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from controller.state.context import LiveBroker
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

logger = logging.getLogger(__name__)

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
ControlResponse: TypeAlias = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
OnResponse: TypeAlias = Callable[[ControlResponse], None]
OnSent: TypeAlias = Callable[[int, float], None]
"""Broker id, seconds that a request waited in its queue."""


class BrokerChannel(Protocol):
    """The connection to one broker. Raises ConnectionError if a request could not be delivered; it may be sent again."""

    async def send_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Send version 7 of LeaderAndIsr."""

    async def send_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Send version 8 of UpdateMetadata."""

    async def send_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Send version 4 of StopReplica."""

    async def close(self) -> None:
        """Release its resources."""


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

    async def send_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """See BrokerChannel."""
        return await self._receiver.on_leader_and_isr(request)

    async def send_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """See BrokerChannel."""
        response = await self._receiver.on_update_metadata(request)
        self._on_metadata_updated()
        return response

    async def send_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """See BrokerChannel."""
        return await self._receiver.on_stop_replica(request)

    async def close(self) -> None:
        """See BrokerChannel."""


ChannelFactory: TypeAlias = Callable[[LiveBroker], BrokerChannel]

MAX_BACKOFF_FACTOR = 8
"""Largest pause between attempts, in multiples of the first; pauses double up to it. A broker that is back registers,
and gets requests at once."""


class BrokerSenders:
    """One queue and one task per live broker."""

    def __init__(self, channel_to: ChannelFactory, monotonic: Callable[[], float], retry_backoff_seconds: float = 0.1) -> None:
        self.on_sent: OnSent | None = None
        """Called for every request that leaves its queue, for metrics."""
        self.monotonic = monotonic
        self._channel_to = channel_to
        self._retry_backoff_seconds = retry_backoff_seconds
        self._senders: dict[int, _Sender] = {}
        self._halted: list[_Sender] = []

    @property
    def queue_sizes(self) -> dict[int, int]:
        """Number of waiting requests, by broker."""
        return {broker_id: sender.queue_size for broker_id, sender in self._senders.items()}

    def add(self, broker: LiveBroker) -> None:
        """Begin to send to a broker."""
        if broker.broker_id not in self._senders:
            self._senders[broker.broker_id] = _Sender(self, broker, self._channel_to(broker), self._retry_backoff_seconds)

    async def renew(self, broker: LiveBroker) -> None:
        """The broker's address changed: send queued requests, and the one in flight, to the new one."""
        sender = self._senders.get(broker.broker_id)
        if sender is not None:
            await sender.renew(broker, self._channel_to(broker))

    async def remove(self, broker_id: int) -> None:
        """Stop sending to a broker; queued requests are dropped."""
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            await sender.close()

    def halt(self) -> None:
        """Stop all sending now, dropping queued requests; `remove_all` releases the remaining resources."""
        for sender in self._senders.values():
            sender.halt()
        self._halted += self._senders.values()
        self._senders.clear()

    async def remove_all(self) -> None:
        """Stop sending to all brokers."""
        self.halt()
        halted, self._halted = self._halted, []
        for sender in halted:
            await sender.close()

    def send(self, broker_id: int, request: ControlRequest, on_response: OnResponse) -> None:
        """Queue a request. A request to a broker without a queue is dropped: the broker is gone, which is an event of
        its own."""
        sender = self._senders.get(broker_id)
        if sender is not None:
            sender.put(request, on_response)

    async def delivered(self) -> None:
        """Wait until every request that is queued now has been answered."""
        for sender in list(self._senders.values()):
            await sender.delivered()


class _Sender:
    def __init__(self, senders: BrokerSenders, broker: LiveBroker, channel: BrokerChannel, retry_backoff_seconds: float) -> None:
        self._senders = senders
        self._broker = broker
        self._channel = channel
        self._retry_backoff_seconds = retry_backoff_seconds
        self._queue: deque[tuple[ControlRequest, OnResponse, float]] = deque()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"controller-to-broker-{broker.broker_id}")

    def put(self, request: ControlRequest, on_response: OnResponse) -> None:
        self._queue.append((request, on_response, self._senders.monotonic()))
        self._idle.clear()
        self._filled.set()

    @property
    def queue_size(self) -> int:
        return len(self._queue)

    async def renew(self, broker: LiveBroker, channel: BrokerChannel) -> None:
        old, self._channel, self._broker = self._channel, channel, broker
        await old.close()

    async def delivered(self) -> None:
        await self._idle.wait()

    def halt(self) -> None:
        self._queue.clear()
        self._task.cancel()

    async def close(self) -> None:
        self.halt()
        await asyncio.gather(self._task, return_exceptions=True)
        self._idle.set()
        await self._channel.close()

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            while self._queue:
                request, on_response, queued_at = self._queue.popleft()
                senders = self._senders
                if senders.on_sent is not None:
                    senders.on_sent(self._broker.broker_id, senders.monotonic() - queued_at)
                on_response(await self._deliver(request))
            self._filled.clear()
            self._idle.set()

    async def _deliver(self, request: ControlRequest) -> ControlResponse:
        """Send until the request is answered: a broker must miss none until the store reports that it is gone."""
        failures = 0
        while True:
            try:
                response = await self._send(request)
            except OSError as error:
                if not failures:
                    logger.warning(
                        "controller cannot send %s to broker %d (%s); trying again until it succeeds or the broker's session ends",
                        type(request).__name__, self._broker.broker_id, error,
                    )  # fmt: skip
                await asyncio.sleep(self._retry_backoff_seconds * min(2**failures, MAX_BACKOFF_FACTOR))
                failures += 1
            else:
                if failures:
                    logger.info("controller reaches broker %d again, after %d attempts", self._broker.broker_id, failures)
                return response

    async def _send(self, request: ControlRequest) -> ControlResponse:
        if isinstance(request, LeaderAndIsrRequest):
            return await self._channel.send_leader_and_isr(request)
        if isinstance(request, UpdateMetadataRequest):
            return await self._channel.send_update_metadata(request)
        return await self._channel.send_stop_replica(request)
