"""Sends requests to brokers by their ids, over one connection to each; calls the handlers of this broker directly.

Used for requests to the leader of a partition: one request in flight per broker, without retries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.broker.cluster.controller_channel import AskHere
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.message import Message
from ottla.replication.ports.peer import Connect, Peer, PeerAddress

AddressOf: TypeAlias = Callable[[int], PeerAddress | None]
"""The address of a broker by its id; None when it is not known now."""


class BrokerRequests:
    """See the module."""

    __slots__ = ("_address_of", "_ask_here", "_broker_id", "_client_id", "_connect", "_peers", "_timeout_ms")

    def __init__(self, broker_id: int, client_id: str, timeout_ms: int, connect: Connect, address_of: AddressOf, ask_here: AskHere) -> None:
        """`timeout_ms` is `request.timeout.ms`."""
        self._broker_id = broker_id
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._connect = connect
        self._address_of = address_of
        self._ask_here = ask_here
        self._peers: dict[int, Peer] = {}

    async def ask(self, broker_id: int, api_key: ApiKey, version: int, message: Message) -> Message:
        """The answer of a broker, in this version or in the newest that it supports.

        Raises PeerUnavailable; UnsupportedVersion or UnsupportedField if the broker supports no version that can express the request.
        """
        if broker_id == self._broker_id:
            return await self._ask_here(api_key, version, message)
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._connect(lambda: self._address_of(broker_id), self._client_id, negotiate=True)
            self._peers[broker_id] = peer
        return await peer.request(api_key, version, message, timeout_ms=self._timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        while self._peers:
            _, peer = self._peers.popitem()
            await peer.close()
