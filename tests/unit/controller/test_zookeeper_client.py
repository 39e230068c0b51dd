"""What the client of ZooKeeper does where no server answers, or breaks connections: no ZooKeeper is needed to see that."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler

from ottla.controller.errors import StoreUnavailable
from ottla.controller.store import zookeeper_client
from ottla.controller.store.metadata_store import EventType
from ottla.controller.store.sasl_exchange import SaslExchange
from ottla.controller.store.zookeeper_client import MAX_BROKEN_LOGINS, Listener, ZooKeeperClient
from ottla.controller.store.zookeeper_store import ZooKeeperSettings, ZooKeeperStore
from tests.support.controlled_cluster import until

SESSION_TIMEOUT_MS = 60_000


@pytest.mark.slow
def test_one_server_that_forgets_a_connection_does_not_cost_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a session is enough for more than one attempt, though there is one server only."""
    waits: list[float] = []

    def answer_nothing(_: ConnectionHandler, timeout: float, *__: object) -> None:
        waits.append(timeout)
        raise ConnectionDropped("no answer")

    monkeypatch.setattr(ConnectionHandler, "_invoke", answer_nothing)

    async def scenario(port: int) -> None:
        store = ZooKeeperStore(ZooKeeperSettings(f"127.0.0.1:{port}", SESSION_TIMEOUT_MS, connection_timeout_ms=500))
        with pytest.raises(StoreUnavailable):
            await store.open_session()
        await store.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(scenario(server.getsockname()[1]))
    assert waits
    assert max(waits) <= SESSION_TIMEOUT_MS / 1000 / 3


class ServerWithLogin:
    """Plays a ZooKeeper whose clients log in. The next `breaks` connections break during the login."""

    SASL, CLOSE = 102, -11

    def __init__(self) -> None:
        self.breaks = 0
        self._connections: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._read(reader)
            self._write(writer, struct.pack(">iiqi", 0, SESSION_TIMEOUT_MS, 7, 16) + bytes(16) + b"\0")
            while True:
                xid, kind = struct.unpack_from(">ii", await self._read(reader))
                if kind == self.SASL and self.breaks:
                    self.breaks -= 1
                    break
                self._write(writer, struct.pack(">iqi", xid, 0, 0) + (struct.pack(">i", 0) if kind == self.SASL else b""))
                if kind == self.CLOSE:
                    break
        writer.close()

    def break_connections(self) -> None:
        for writer in self._connections:
            writer.close()
        self._connections.clear()

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)

    @staticmethod
    def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
        writer.write(struct.pack(">i", len(frame)) + frame)


class Exchange(SaslExchange):
    """A login of one step."""

    def first(self) -> bytes:
        return b"token"

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class Events(Listener):
    """Notes what becomes of the session."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_connected(self, generation: int, session_id: int, last_zxid: int) -> None:
        self.seen.append("connected")

    def on_disconnected(self, reason: str) -> None:
        """Happens as often as a connection breaks."""

    def on_session_ended(self, reason: str) -> None:
        self.seen.append("ended")

    def on_auth_failed(self) -> None:
        self.seen.append("refused")

    def on_event(self, event_type: EventType, path: str) -> None:
        raise AssertionError(path)

    def on_reply(self, tag: object, result: object, error: Exception | None) -> None:
        raise AssertionError(tag)


@pytest.mark.parametrize(
    ("first", "later", "seen"),
    [
        (0, 0, ["connected", "connected"]),
        (0, MAX_BROKEN_LOGINS, ["connected", "connected"]),
        (0, MAX_BROKEN_LOGINS + 1, ["connected", "refused", "ended"]),
        (1, 0, ["refused", "ended"]),
    ],
)
def test_connections_that_break_during_the_login_cost_the_session_only_if_it_never_succeeded_or_too_many_do(
    monkeypatch: pytest.MonkeyPatch, first: int, later: int, seen: list[str]
) -> None:
    """A server that stops between the two answers breaks the connection in the same way as one that refuses the client."""
    monkeypatch.setattr(zookeeper_client, "RECONNECT_SECONDS", 0.001)
    monkeypatch.setattr(zookeeper_client, "MAX_RECONNECT_SECONDS", 0.01)

    async def scenario() -> None:
        server, events = ServerWithLogin(), Events()
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        client = ZooKeeperClient(f"127.0.0.1:{port}", SESSION_TIMEOUT_MS, None, None, events, lambda _: Exchange())
        server.breaks = first
        client.start()
        try:
            await until(lambda: bool(events.seen))
            server.breaks = later
            server.break_connections()
            await until(lambda: len(events.seen) >= len(seen))
            assert events.seen[: len(seen)] == seen
        finally:
            await client.close()
            listening.close()

    asyncio.run(scenario())
