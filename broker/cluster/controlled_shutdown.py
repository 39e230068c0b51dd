"""Before a broker stops it asks the controller to move its leaderships elsewhere, while it still serves. Kafka's doControlledShutdown.

Called by `broker.server` first of all when it stops. The request goes over a connection of its own, without ApiVersions, in version 3. A
controller that could not move everything, or cannot be reached, is asked again; then the broker stops anyway. Other than Apache Kafka, it
does not sleep through the pause: it goes on as soon as the last other broker is gone, and asks as soon as somebody is in sync again. Nor
does it wait for an answer while the metadata store is away: mostly it is so for the controller, too, which then decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from broker.cluster.controller_channel import AskHere, controller_address
from config.broker import BrokerConfig
from config.keys.general import CONTROLLED_SHUTDOWN_MAX_RETRIES, CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS
from config.keys.replication import CONTROLLER_SOCKET_TIMEOUT_MS
from controller.errors import ControllerError, StoreError
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from protocol.schema.message import Message
from replication.control.replica_manager import ReplicaManager
from replication.leader.followers import Followers
from replication.leader.partition import Partition
from replication.ports.cluster import MetadataCache
from replication.ports.peer import Connect, PeerUnavailable
from storage.disk.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

VERSION = 3
HANDED_OVER_SECONDS = 1.0
"""How long the LeaderAndIsr may take by which this broker learns that it leads no longer."""
POLL_SECONDS = 0.01
RETRY_POLL_SECONDS = 0.1
STORE_AWAY_SECONDS = 3.0
"""A connection to ZooKeeper that breaks is there again sooner, unless ZooKeeper is gone."""

Sleep = Callable[[float], Awaitable[None]]


class StoreAway(Exception):
    """No answer came, and for a while now none could."""


class Leaving:
    """The `Followers` of a broker that hands over: it follows nothing anew.

    Were it to fetch what it led a moment ago, the new leaders would propose it for their ISRs, and wait for it with every record until
    somebody decides that, which takes as long as an election when this broker was the controller.
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
        """Hand over what this broker leads; whether the controller says that it did. A broker that is alone has nobody to give it to."""
        attempts = self._config[CONTROLLED_SHUTDOWN_MAX_RETRIES]
        for left in range(attempts - 1, -1, -1):
            if self._is_alone(broker_id):
                return True
            try:
                why = await self._attempt(broker_id, broker_epoch)
            except StoreAway:
                logger.warning("controlled shutdown of broker %d: the metadata store is away, so the controller cannot decide", broker_id)
                break
            if why is None:
                await self._handed_over(broker_id)
                logger.info("the controller has moved the leaderships of broker %d elsewhere", broker_id)
                return True
            logger.warning("controlled shutdown of broker %d: %s; %d attempts are left", broker_id, why, left)
            if left:
                await self._pause(broker_id)
        logger.warning("broker %d stops without controlled shutdown: its partitions elect leaders when its session ends", broker_id)
        return False

    async def _attempt(self, broker_id: int, broker_epoch: int) -> str | None:
        """Ask once; why it failed, or None. Raises StoreAway."""
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        try:
            response = cast("ControlledShutdownResponse", await self._answer(request, str(broker_id)))
        except (PeerUnavailable, ControllerError, StoreError) as error:
            return f"the controller was not reached: {error}"
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
        """Wait until it makes sense to ask again."""
        waits_for_somebody = not self._leads_what_others_host(broker_id)
        left = self._config[CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS] / 1000
        while left > 0 and not self._is_alone(broker_id):
            await self._sleep(min(left, RETRY_POLL_SECONDS))
            left -= RETRY_POLL_SECONDS
            if waits_for_somebody and self._leads_what_others_host(broker_id):
                return

    async def _handed_over(self, broker_id: int) -> None:
        """The controller answers as soon as it has decided; until LeaderAndIsr comes, producers are still served here in an epoch that is
        over. Stopping in between would cost them a disconnect instead of a quick NOT_LEADER_OR_FOLLOWER.
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
