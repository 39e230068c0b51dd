"""Sends WriteTxnMarkers to the leaders of partitions, this broker among them. Implements `transactions.markers.AskBroker`.

Each broker has a connection of its own. The handler of this broker is called without a socket, so that a transaction of its own partitions
ends before its producer begins the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from broker.cluster.controller_channel import AskHere
from protocol.api_keys import ApiKey
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from replication.ports.peer import Connect, Peer, PeerAddress, Resolve

AddressOf: TypeAlias = Callable[[int], PeerAddress | None]


class MarkerRequests:
    """See the module."""

    __slots__ = ("_address_of", "_ask_here", "_broker_id", "_client_id", "_connect", "_peers", "_timeout_ms", "_version")

    def __init__(self, broker_id: int, version: int, timeout_ms: int, connect: Connect, address_of: AddressOf, ask_here: AskHere) -> None:
        """`timeout_ms` is `request.timeout.ms`, `version` that of the requests."""
        self._broker_id = broker_id
        self._version = version
        self._timeout_ms = timeout_ms
        self._connect = connect
        self._address_of = address_of
        self._ask_here = ask_here
        self._client_id = f"broker-{broker_id}-txn-marker-sender"
        self._peers: dict[int, Peer] = {}

    async def write(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """See AskBroker."""
        if broker_id == self._broker_id:
            response = await self._ask_here(ApiKey.WRITE_TXN_MARKERS, self._version, request)
        else:
            peer = self._peers.get(broker_id)
            if peer is None:
                peer = self._peers[broker_id] = self._connect(self._resolve(broker_id), self._client_id)
            response = await peer.request(ApiKey.WRITE_TXN_MARKERS, self._version, request, timeout_ms=self._timeout_ms)
        assert isinstance(response, WriteTxnMarkersResponse)
        return response

    async def close(self, broker_id: int) -> None:
        """See AskBroker."""
        peer = self._peers.pop(broker_id, None)
        if peer is not None:
            await peer.close()

    def _resolve(self, broker_id: int) -> Resolve:
        return lambda: self._address_of(broker_id)
