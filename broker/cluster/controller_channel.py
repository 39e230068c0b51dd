"""Sends requests to the active controller. Kafka's NodeToControllerChannelManager.

Used for AlterPartition, AllocateProducerIds and, without ApiVersions and retries of its own, ControlledShutdown. The
controller is the broker named in the last UpdateMetadata, at its endpoint of the control plane's or inter-broker listener. If that is this
broker, the handler is called without a socket.

One request is in flight at a time, the others wait in order. A channel costs nothing until it is used, so every purpose
has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema.message import Message
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.peer import Connect, Peer, PeerAddress, PeerRefused, PeerUnavailable

RETRY_BACKOFF_SECONDS = 0.05
REFUSED_BACKOFF_SECONDS = 1.0
"""Pause after a failed authentication, in seconds; only an operator can help."""

AskHere: TypeAlias = Callable[[ApiKey, int, Message], Awaitable[Message]]


class ControllerChannel:
    """See the module."""

    __slots__ = ("_ask_here", "_cluster", "_connect", "_is_controller", "_listener", "_peer", "_peer_at", "_turn", "client_id")

    def __init__(
        self,
        cluster: MetadataCache,
        connect: Connect,
        listener: str,
        client_id: str,
        is_controller: Callable[[], bool],
        ask_here: AskHere,
    ) -> None:
        """`ask_here` answers when `is_controller` says that this broker is the active controller."""
        self.client_id = client_id
        self._cluster = cluster
        self._connect = connect
        self._listener = listener
        self._is_controller = is_controller
        self._ask_here = ask_here
        self._peer: Peer | None = None
        self._peer_at: PeerAddress | None = None
        self._turn = asyncio.Lock()

    async def request(self, api_key: ApiKey, version: int, message: Message, timeout_ms: int) -> Message:
        """The controller's answer. Repeats the request, after a pause, until a broker answers as controller.

        Raises PeerUnavailable after `timeout_ms`; the controller may have acted on the request.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        why = "other requests were in flight"
        try:
            async with asyncio.timeout_at(deadline):
                async with self._turn:
                    while True:
                        pause = RETRY_BACKOFF_SECONDS
                        try:
                            response = await self._ask(api_key, version, message, max(1, int((deadline - loop.time()) * 1000)))
                            if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NOT_CONTROLLER:
                                return response
                            why = f"broker {self._cluster.controller_id} is no longer the controller"
                        except PeerUnavailable as error:
                            why = str(error)
                            if isinstance(error, PeerRefused):
                                pause = REFUSED_BACKOFF_SECONDS
                        await self.close()
                        await asyncio.sleep(pause)
        except TimeoutError:
            raise PeerUnavailable(f"the controller did not answer {api_key.name} within {timeout_ms} ms: {why}") from None

    async def close(self) -> None:
        """Close the connection; a later request opens another."""
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.close()

    async def _ask(self, api_key: ApiKey, version: int, message: Message, timeout_ms: int) -> Message:
        if self._is_controller():
            return await self._ask_here(api_key, version, message)
        address = controller_address(self._cluster, self._listener)
        if address is None:
            raise PeerUnavailable(f"no controller is known here (its id is {self._cluster.controller_id})")
        if self._peer is None or address != self._peer_at:
            await self.close()
            self._peer, self._peer_at = self._connect(lambda: address, self.client_id, negotiate=True), address
        return await self._peer.request(api_key, version, message, timeout_ms=timeout_ms)


def controller_address(cluster: MetadataCache, listener: str) -> PeerAddress | None:
    """The controller's address at this listener, as in the last metadata."""
    return address_in(cluster, cluster.controller_id, listener)


def address_in(cluster: MetadataCache, broker_id: int, listener: str) -> PeerAddress | None:
    """A broker's address at this listener, as in the last metadata."""
    endpoint = cluster.endpoint(broker_id, listener)
    return None if endpoint is None else PeerAddress(endpoint.host, endpoint.port)
