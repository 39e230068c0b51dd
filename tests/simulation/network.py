"""A network without sockets: frames travel as bytes between simulated nodes, late, and not at all where a link is cut.

`SimulatedNetwork` knows who listens where; `SimulatedServer` stands where a broker has its socket server, `SimulatedPeer` where it has a
connection to another one. Clients of the tests use peers, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import log
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

from ottla.broker.network.connection_quotas import ConnectionQuotas
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.limits import NetworkLimits
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE, Completion, Pending
from ottla.broker.security.authorizer import Authorizer
from ottla.config.listeners import EndPoint
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.cursors.fetch_answer_reader import FetchAnswerReader
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from ottla.replication.ports.peer import Peer, PeerAddress, PeerUnavailable, Resolve
from ottla.storage.segment.file_region import FileRegion
from tests.simulation.loop import NODE, Life, SimulatedLoop
from tests.support.connections import ClientConnection

CLIENT = "client"
MEAN_DELAY_S = 0.0005
RETRANSMIT_S = 0.2
LATE = 0.8


class SimulatedNetwork:
    """Names of hosts are names of nodes."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.listening: dict[tuple[str, int], SimulatedServer] = {}
        self._cut: set[frozenset[str]] = set()
        self.slowness: dict[str, float] = {}
        self.may_arrive: Callable[[Exchange], bool] = lambda exchange: True
        """Asked about each request that arrives. One that may not does so when somebody calls its `arrive` again."""
        self.digest = 0
        """Of every frame that arrived anywhere: two stories in which it is the same are the same."""

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between the two any more; nobody is told."""
        self._cut.add(frozenset((one, other)))

    def isolate(self, node: str, others: Iterable[str]) -> None:
        """Cut a node off from all others."""
        for other in others:
            if other != node:
                self.cut(node, other)

    def heal(self) -> None:
        """All links work again."""
        self._cut.clear()

    def passes(self, one: str, other: str) -> bool:
        """Whether a frame sent now arrives."""
        return not self._cut or one == other or frozenset((one, other)) not in self._cut

    def send(self, one: str, other: str, arrive: Callable[..., object], *arguments: Any) -> None:
        """Let something travel; what becomes of it is `arrive`'s affair."""
        self.loop.in_nobodys_name(self.delay(one, other), arrive, *arguments)

    def delay(self, one: str, other: str) -> float:
        """Seconds that a frame takes now."""
        seconds = -log(1.0 - self.random.random()) * MEAN_DELAY_S
        if self.slowness:
            seconds *= self.slowness.get(one, 1.0) * self.slowness.get(other, 1.0)
        return seconds


class SimulatedServer:
    """What a broker uses of `ottla.broker.network.socket_server.SocketServer`."""

    def __init__(self, network: SimulatedNetwork, host: str, life: Life, limits: NetworkLimits) -> None:
        self.limits = limits
        self.quotas = ConnectionQuotas(limits, network.loop.time())
        self.life = life
        self.host = host
        self.bound: dict[str, EndPoint] = {}
        self._network = network
        self._handler: RequestHandler | None = None
        self._accepting = False
        self._draining = False
        self._unanswered: dict[Pending, None] = {}
        self.exchanges: dict[Exchange, None] = {}
        """What has arrived and is not answered."""

    async def start(
        self,
        endpoints: Iterable[EndPoint],
        handler: RequestHandler,
        protected_listener: str | None = None,
        authorizer: Authorizer | None = None,
        client_quotas: object = None,
        authentication: object = None,
        *,
        accepting: bool = True,
        tls_of: object = None,
    ) -> None:
        """See SocketServer. Here each request arrives by itself."""
        self._handler = handler
        self._accepting = accepting
        for endpoint in endpoints:
            self.bound[endpoint.listener_name] = endpoint
            self._network.listening[endpoint.host or self.host, endpoint.port] = self

    @property
    def acceptors(self) -> list[Any]:
        """See SocketServer. Here none has a TLS that could be exchanged."""
        return []

    def accept(self) -> None:
        """See SocketServer."""
        self._accepting = True

    def connections(self) -> list[Any]:
        """See SocketServer. Here no connection is open but for its request."""
        return []

    async def drain(self, seconds: float) -> None:
        """See SocketServer: nothing new, and what was appended is answered."""
        self._draining = True
        deadline = self._network.loop.time() + seconds
        while self._network.loop.time() < deadline:
            if not any(pending.appended and not pending.completed for pending in self._unanswered):
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """See SocketServer."""
        self._accepting = False
        for address, server in list(self._network.listening.items()):
            if server is self:
                del self._network.listening[address]

    def die(self) -> None:
        """The process is gone: its system closes its connections, and whoever waits for an answer learns of it."""
        for (host, port), server in list(self._network.listening.items()):
            if server is self:
                del self._network.listening[host, port]
        for exchange in list(self.exchanges):
            exchange.reply(CLOSE)

    @property
    def is_reachable(self) -> bool:
        """Whether somebody accepts. A paused process does: its kernel."""
        return self._accepting and not self._draining and not self.life.is_dead

    def handle(self, frame: bytes, reply: Callable[[Completion], None], client_host: str) -> None:
        """A frame has arrived. Runs in the name of the node."""
        if not self.is_reachable or self._handler is None:
            reply(CLOSE)
            return
        connection: Any = ClientConnection(client_host=client_host, listener_name=next(iter(self.bound)))
        answer = self._handler.handle(memoryview(bytearray(frame)), connection)
        if not isinstance(answer, Pending):
            reply(answer)
            return
        if answer.completed:
            reply(answer.answer)
            return
        self._unanswered[answer] = None

        def on_answer_ready() -> None:
            del self._unanswered[answer]
            reply(answer.answer)

        def nothing(*_: object) -> None:
            """Nothing counts the work of a request."""

        waiter = SimpleNamespace(on_answer_ready=on_answer_ready, hold_slot=nothing, begin_work=nothing, end_work=nothing, add_work=nothing)
        answer.connection = cast("Any", waiter)


class Exchange:
    """A request and its answer. `arrive`, `back_home` and what the network does to both run in nobody's name."""

    __slots__ = ("address", "answered", "client", "frame", "life", "network", "server")

    def __init__(self, network: SimulatedNetwork, client: str, address: PeerAddress, frame: bytes) -> None:
        self.network = network
        self.client = client
        self.address = address
        self.frame = frame
        self.life = NODE.get()
        self.server: SimulatedServer | None = None
        self.answered: asyncio.Future[bytes] = network.loop.create_future()

    async def take_place(self, timeout_s: float) -> bytes:
        """The answer. Raises PeerUnavailable."""
        network = self.network
        network.send(self.client, self.address.host, self.arrive)
        timer = network.loop.call_later(timeout_s, self.fail, "did not answer in time")
        try:
            return await self.answered
        finally:
            timer.cancel()

    def arrive(self) -> None:
        """The frame is there."""
        address, network = self.address, self.network
        if not network.passes(self.client, address.host):
            self._send_again(self.arrive)
            return
        if not network.may_arrive(self):
            return
        server = network.listening.get((address.host, address.port))
        if server is None or not server.is_reachable:
            self.back_home(None)
            return
        network.digest = crc32(self.frame, network.digest)
        self.server = server
        server.exchanges[self] = None
        server.life.call_soon(server.handle, self.frame, self.reply, self.client)

    def reply(self, answer: Completion) -> None:
        """Runs in the name of whoever answers."""
        assert self.server is not None
        self.server.exchanges.pop(self, None)
        if answer is not NO_RESPONSE:
            self.network.send(self.address.host, self.client, self.back_home, None if answer is CLOSE else _bytes_of(answer))

    def back_home(self, answer: bytes | None) -> None:
        """The answer is there."""
        if not self.network.passes(self.client, self.address.host):
            self._send_again(self.back_home, answer)
            return
        if answer is not None:
            self.network.digest = crc32(answer, self.network.digest)
        if self.life is None:
            self.come_back(answer)
        else:
            self.life.call_soon(self.come_back, answer)

    def _send_again(self, arrive: Callable[..., object], *arguments: Any) -> None:
        """As TCP does. When nobody waits for it any more it may still arrive, late."""
        network = self.network
        if not self.answered.done() or network.random.random() < LATE:
            network.loop.in_nobodys_name(RETRANSMIT_S * (0.5 + network.random.random()), arrive, *arguments)

    def come_back(self, answer: bytes | None) -> None:
        """Runs in the name of whoever asked."""
        if self.answered.done():
            return
        if answer is None:
            self.fail("closed the connection")
        else:
            self.answered.set_result(answer)

    def fail(self, reason: str) -> None:
        """There will be no answer."""
        if not self.answered.done():
            self.answered.set_exception(PeerUnavailable(f"{self.address.host}:{self.address.port}: {reason}"))


class SimulatedPeer(Peer):
    """A connection that costs nothing to make. `own` is the host of whoever asks. `newest` gives the newest version of an API that a host
    lists, for a peer that negotiates versions."""

    def __init__(
        self,
        network: SimulatedNetwork,
        own: str,
        resolve: Resolve,
        client_id: str,
        newest: Callable[[str, ApiKey], int] | None = None,
    ) -> None:
        self._newest = newest
        self._network = network
        self._own = own
        self._resolve = resolve
        self._client_id = client_id
        self._correlation_id = 0
        self._closed = False

    async def request(self, api_key: ApiKey, version: int, request: Message, *, timeout_ms: int) -> Message:
        """See Peer."""
        address = self._resolve()
        if self._newest is not None and address is not None:
            version = min(version, self._newest(address.host, api_key))
        answer, offset = await self._ask(api_key, version, request, timeout_ms)
        return api(api_key).response.decode(memoryview(answer), version, offset)[0]

    async def fetch(self, version: int, request: FetchRequest, *, timeout_ms: int) -> FetchAnswerReader:
        """See Peer."""
        answer, offset = await self._ask(ApiKey.FETCH, version, request, timeout_ms)
        return FetchAnswerReader(memoryview(bytearray(answer)), offset, version)

    async def _ask(self, api_key: ApiKey, version: int, request: Message, timeout_ms: int) -> tuple[bytes, int]:
        """The frame of the answer, and where its body begins."""
        address = self._resolve()
        if self._closed or address is None:
            raise PeerUnavailable("closed" if self._closed else "the address is not known")
        types = api(api_key)
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=api_key, request_api_version=version, correlation_id=self._correlation_id, client_id=self._client_id
        )
        frame = header.encode(types.request_header_version(version)) + request.encode(version)
        answer = await Exchange(self._network, self._own, address, frame).take_place(timeout_ms / 1000)
        return answer, ResponseHeader.decode(answer, types.response_header_version(version), 0)[1]

    async def close(self) -> None:
        """See Peer."""
        self._closed = True


def _bytes_of(answer: Completion) -> bytes:
    if isinstance(answer, bytes):
        return answer
    assert isinstance(answer, list)
    return b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in answer)
