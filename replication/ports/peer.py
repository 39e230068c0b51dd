"""The port to other brokers: how this broker asks one of them something.

Used by the follower fetchers, by the leader that proposes an ISR, and by the controller's channels. `broker/network/peer_connection.py`
implements it on sockets; the simulation and the unit tests implement it without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from protocol.api_keys import ApiKey
from protocol.cursors.fetch_answer_reader import FetchAnswerReader
from protocol.messages.fetch import FetchRequest
from protocol.schema.message import Message


class PeerUnavailable(ConnectionError):
    """The other broker could not be reached, did not answer in time, or closed the connection. Whether it acted is unknown."""


class PeerAddress(NamedTuple):
    """Where a broker listens for brokers. `security_protocol` is SecurityProtocol's number."""

    host: str
    port: int
    security_protocol: int


Resolve: TypeAlias = Callable[[], PeerAddress | None]
"""Looked up anew for every connection: a broker may come back at another address. None: not known now."""


class Peer(Protocol):
    """A connection to one broker. It connects with the first request and again after it was lost; one request is under way at a time."""

    async def request(self, api_key: ApiKey, version: int, request: Message, *, timeout_ms: int) -> Message:
        """Send `request` in `version`, wait for its answer and decode it.

        `timeout_ms` covers connecting, too. Raises PeerUnavailable; the connection is closed then. Being cancelled closes it, too, for the
        answer would come to another.
        """

    async def fetch(self, version: int, request: FetchRequest, *, timeout_ms: int) -> FetchAnswerReader:
        """The same for a Fetch, whose answer is sound and is read where it was received: it stays there until the next request."""

    async def close(self) -> None:
        """Close the connection. A later request raises PeerUnavailable."""


class Connect(Protocol):
    """Makes peers."""

    def __call__(self, resolve: Resolve, client_id: str, *, negotiate: bool = False) -> Peer:
        """`negotiate`: begin each connection with ApiVersions, and let `request` lower its version to the highest that both sides know."""
