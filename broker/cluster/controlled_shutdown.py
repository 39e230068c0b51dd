"""Asks the controller to move this broker's leaderships before the broker stops, while it still serves. Kafka's
doControlledShutdown.

Called by `ottla.broker.server` first of all when it stops. The request goes over a connection of its own, without
ApiVersions, in version 3. It is repeated if the controller could not move all leaderships, or cannot be reached; after
the last attempt the broker stops anyway.

Differences from Apache Kafka: the pause between attempts ends early if no other broker is left, or if another replica is in sync again. The
broker does not wait for an answer while the metadata store is unavailable: probably the controller cannot reach the store either, and then
decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from ottla.broker.cluster.controller_channel import AskHere, controller_address
from ottla.config.broker import BrokerConfig
from ottla.config.keys.general import CONTROLLED_SHUTDOWN_MAX_RETRIES, CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS
from ottla.config.keys.replication import CONTROLLER_SOCKET_TIMEOUT_MS
from ottla.controller.errors import ControllerError, StoreError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.protocol.schema.message import Message
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.leader.followers import Followers
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.peer import Connect, PeerUnavailable

logger = logging.getLogger(__name__)

VERSION = 3
HANDED_OVER_SECONDS = 1.0
"""Wait for the LeaderAndIsr that ends this broker's leaderships, seconds."""
POLL_SECONDS = 0.01
RETRY_POLL_SECONDS = 0.1
STORE_AWAY_SECONDS = 3.0
"""Time without the metadata store after which an attempt is ended, seconds; a broken connection to ZooKeeper is
restored sooner, unless ZooKeeper is gone."""

Sleep = Callable[[float], Awaitable[None]]


class StoreAway(Exception):
    """No answer came, and the metadata store is unavailable."""


class Leaving:
    """The `Followers` of a broker in controlled shutdown: it follows no partition any more.

    If it fetched a partition that it led before, the new leader would add this broker to the ISR. Each append would
    then wait until this broker leaves the ISR. That takes as long as an election when this broker was the controller.
    """

    def __init__(self, followers: Followers) -> None:
        self._followers = followers

    def follow(self, partitions: Iterable[Partition], *, more_to_come: bool = False) -> None:
        """See Followers."""
        self._followers.unfollow([partition.topic_partition for partition in partitions])

    def unfollow(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """See Followers."""
        self._followers.unfollow(topic_partitions)


class ControlledShutdown:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster: MetadataCache,
        replica_manager: ReplicaManager,
        connect: Connect,
        is_controller: Callable[[], bool],
        ask_here: AskHere,
        is_store_connected: Callable[[], bool],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._replica_manager = replica_manager
        self._connect = connect
        self._is_controller = is_controller
        self._ask_here = ask_here
        self._is_store_connected = is_store_connected
        self._sleep = sleep

    async def run(self, broker_id: int, broker_epoch: int) -> bool:
        """Move the leaderships of this broker; returns whether the controller confirms it. A broker without other
        brokers has nothing to move."""
        attempts = self._config[CONTROLLED_SHUTDOWN_MAX_RETRIES]
        for left in range(attempts - 1, -1, -1):
            if self._is_alone(broker_id):
                return True
            try:
                why = await self._attempt(broker_id, broker_epoch)
            except StoreAway:
                logger.warning(
                    "controlled shutdown of broker %d: the metadata store is unavailable, so the controller cannot decide", broker_id
                )
                break
            if why is None:
                await self._handed_over(broker_id)
                logger.info("the controller has moved the leaderships of broker %d to other brokers", broker_id)
                return True
            logger.warning("controlled shutdown of broker %d: %s; %d attempts are left", broker_id, why, left)
            if left:
                await self._pause(broker_id)
        logger.warning("broker %d stops without controlled shutdown: its partitions elect leaders when its session ends", broker_id)
        return False

    async def _attempt(self, broker_id: int, broker_epoch: int) -> str | None:
        """Send the request once; returns the reason of a failure, or None. Raises StoreAway."""
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        try:
            response = cast("ControlledShutdownResponse", await self._answer(request, str(broker_id)))
        except (PeerUnavailable, ControllerError, StoreError) as error:
            return f"the controller cannot be reached: {error}"
        except TimeoutError:
            return "the controller did not answer in time"
        if response.error_code != ErrorCode.NONE:
            return f"the controller refused with {ErrorCode.of(response.error_code).name}"
        if response.remaining_partitions:
            first = response.remaining_partitions[0]
            return f"{len(response.remaining_partitions)} partitions have no other leader, as {first.topic_name}-{first.partition_index}"
        return None

    async def _answer(self, request: Message, client_id: str) -> Message:
        asked = asyncio.ensure_future(self._ask(request, client_id))
        away_seconds = 0.0
        try:
            while not asked.done():
                await asyncio.wait((asked,), timeout=RETRY_POLL_SECONDS)
                away_seconds = 0.0 if self._is_store_connected() else away_seconds + RETRY_POLL_SECONDS
                if away_seconds >= STORE_AWAY_SECONDS and not asked.done():
                    raise StoreAway
            return asked.result()
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _ask(self, request: Message, client_id: str) -> Message:
        timeout_ms = self._config[CONTROLLER_SOCKET_TIMEOUT_MS]
        if self._is_controller():
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._ask_here(ApiKey.CONTROLLED_SHUTDOWN, VERSION, request)
        address = controller_address(self._cluster, self._config.listeners.inter_broker_listener_name)
        peer = self._connect(lambda: address, client_id)
        try:
            return await peer.request(ApiKey.CONTROLLED_SHUTDOWN, VERSION, request, timeout_ms=timeout_ms)
        finally:
            await peer.close()

    def _is_alone(self, broker_id: int) -> bool:
        return not any(other != broker_id for other in self._cluster.brokers)

    async def _pause(self, broker_id: int) -> None:
        """Wait until another attempt may succeed."""
        waits_for_somebody = not self._leads_what_others_host(broker_id)
        left = self._config[CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS] / 1000
        while left > 0 and not self._is_alone(broker_id):
            await self._sleep(min(left, RETRY_POLL_SECONDS))
            left -= RETRY_POLL_SECONDS
            if waits_for_somebody and self._leads_what_others_host(broker_id):
                return

    async def _handed_over(self, broker_id: int) -> None:
        """Wait for the LeaderAndIsr that ends the leaderships.

        The controller answers before it is delivered, and until then producers are still served here in an old epoch.
        If the broker stopped in between, they would see a disconnect instead of a quick NOT_LEADER_OR_FOLLOWER.
        """
        waited = 0.0
        while waited < HANDED_OVER_SECONDS and self._leads_what_others_host(broker_id):
            await self._sleep(POLL_SECONDS)
            waited += POLL_SECONDS

    def _leads_what_others_host(self, broker_id: int) -> bool:
        live = self._cluster.brokers
        for partition in self._replica_manager:
            if partition.is_leader and any(replica != broker_id and replica in live for replica in partition.isr):
                return True
        return False
