"""Connects to the brokers that lead partitions of `__remote_log_metadata`, this one included, with the broker's own credentials.

The listener is that of `remote.log.metadata.manager.listener.name`, by default the one between brokers. Requests to this broker take the
same way, so that leaders here and elsewhere are one case.
"""

from __future__ import annotations

from typing import Final

from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.peer import Connect, Peer, PeerAddress

REQUEST_TIMEOUT_MS: Final = 30_000


class MetadataPeers:
    """See the module."""

    __slots__ = ("_client_id", "_cluster", "_connect", "_listener")

    def __init__(self, connect: Connect, cluster: MetadataCache, listener: str, broker_id: int) -> None:
        self._connect = connect
        self._cluster = cluster
        self._listener = listener
        self._client_id = f"__remote_log_metadata_client_{broker_id}"

    def to(self, broker_id: int) -> Peer:
        """Makes a connection to a broker, which the caller closes."""

        def address() -> PeerAddress | None:
            endpoint = self._cluster.endpoint(broker_id, self._listener)
            return None if endpoint is None else PeerAddress(endpoint.host, endpoint.port)

        return self._connect(address, self._client_id, negotiate=True)
