"""Peers without sockets: every request goes to a function of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.fetch_answer_reader import FetchAnswerReader
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from ottla.replication.ports.peer import PeerAddress, PeerUnavailable, Resolve
from tests.support.followers import reader_of


class Asked(NamedTuple):
    """One request, as the other broker would decode it."""

    address: PeerAddress
    client_id: str
    api_key: ApiKey
    version: int
    message: Message


class FakePeers:
    """The `Connect` of a test. `answer` returns the response or raises."""

    def __init__(self, answer: Callable[[Asked], Message]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.made: list[FakePeer] = []

    def __call__(self, resolve: Resolve, client_id: str, *, negotiate: bool = False) -> FakePeer:
        peer = FakePeer(self, resolve, client_id, negotiate)
        self.made.append(peer)
        return peer

    async def travel(self) -> None:
        """Takes the time of a request, or of its answer: none."""

    @property
    def open(self) -> int:
        """How many were not closed."""
        return sum(not peer.closed for peer in self.made)


class FakePeer:
    """One of them."""

    def __init__(self, peers: FakePeers, resolve: Resolve, client_id: str, negotiate: bool) -> None:
        self._peers = peers
        self._resolve = resolve
        self.client_id = client_id
        self.negotiate = negotiate
        self.closed = False

    async def request(self, api_key: ApiKey, version: int, request: Message, *, timeout_ms: int) -> Message:
        """The test's answer; both messages are encoded and decoded on the way."""
        address = self._resolve()
        if self.closed or address is None:
            raise PeerUnavailable("closed" if self.closed else "the broker's address is not known")
        assert timeout_ms > 0
        types = api(api_key)
        asked = Asked(address, self.client_id, api_key, version, types.request.decode(request.encode(version), version)[0])
        self._peers.asked.append(asked)
        await self._peers.travel()
        answer = self._peers.answer(asked).encode(version)
        await self._peers.travel()
        return types.response.decode(answer, version)[0]

    async def fetch(self, version: int, request: FetchRequest, *, timeout_ms: int) -> FetchAnswerReader:
        """The same of a Fetch."""
        return reader_of(await self.request(ApiKey.FETCH, version, request, timeout_ms=timeout_ms), version)

    async def close(self) -> None:
        """See Peer."""
        self.closed = True
