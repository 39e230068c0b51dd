"""Declares the port to other brokers: a connection that sends requests and receives the answers.

Used by the follower fetchers, by leaders that propose an ISR, and by the controller's channels. `broker/network/peer_connection.py`
implements it on sockets; the simulation and the unit tests have their own implementations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.fetch_answer_reader import FetchAnswerReader
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.schema.message import Message


class PeerUnavailable(ConnectionError):
    """The other broker could not be reached, did not answer in time, or closed the connection. Whether it acted is unknown."""


class PeerRefused(PeerUnavailable):
    """Authentication between the brokers failed. Another attempt helps only after a change of configuration, so it should not come soon."""


class PeerAddress(NamedTuple):
    """Address at which a broker listens for brokers."""

    host: str
    port: int


Resolve: TypeAlias = Callable[[], PeerAddress | None]
"""Called for every new connection, because a broker may return at another address. None means that the address is unknown."""


class Peer(Protocol):
    """A connection to one broker. The first request opens it, or the next one after a loss. One request at a time is in flight."""

    async def request(self, api_key: ApiKey, version: int, request: Message, *, timeout_ms: int) -> Message:
        """Send `request` in `version`, wait for its answer and decode it.

        `timeout_ms` includes connecting. Raises PeerUnavailable, and then the connection is closed. A cancellation closes it, too, because
        otherwise the next request would receive the answer.
        """

    async def fetch(self, version: int, request: FetchRequest, *, timeout_ms: int) -> FetchAnswerReader:
        """Send a Fetch as `request` does. The answer is verified, and stays in the receive buffer until the next request."""

    async def close(self) -> None:
        """Close the connection. A later request raises PeerUnavailable."""


class Connect(Protocol):
    """Opens connections to brokers."""

    def __call__(self, resolve: Resolve, client_id: str, *, negotiate: bool = False) -> Peer:
        """With `negotiate`, connections begin with ApiVersions, and `request` lowers its version to the highest that both sides know."""
