"""Plays the other end of a peer connection, in the test's own loop: reads requests, and acts on the connection as the test wants."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from ottla.replication.ports.peer import PeerAddress


class Received(NamedTuple):
    """One request as it came. `writer` is the connection it came by."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    body: Message
    writer: asyncio.StreamWriter

    def answer(self, response: Message, version: int | None = None) -> bytes:
        """The frame that answers it."""
        spoken = self.version if version is None else version
        tags = b"\0" if api(self.api_key).response_header_version(spoken) else b""
        frame = struct.pack(">i", self.correlation_id) + tags + response.encode(spoken)
        return struct.pack(">i", len(frame)) + frame


OnRequest = Callable[[Received], Awaitable[bytes | None]]


class ScriptedPeer:
    """`requests` are those that came, `connections` how many connections there were."""

    def __init__(self, on_request: OnRequest) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.open = 0
        self.address = PeerAddress("127.0.0.1", 0)
        self._on_request = on_request

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                answer = await self._on_request(self._read(await reader.readexactly(length), writer))
                if answer is None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.open -= 1
            writer.close()

    def _read(self, frame: bytes, writer: asyncio.StreamWriter) -> Received:
        types = api(ApiKey(struct.unpack_from(">h", frame)[0]))
        version = struct.unpack_from(">h", frame, 2)[0]
        header, offset = RequestHeader.decode(frame, types.request_header_version(version))
        body, end = types.request.decode(frame, version, offset)
        assert end == len(frame)
        received = Received(types.key, version, header.correlation_id, header.client_id, body, writer)
        self.requests.append(received)
        return received


@asynccontextmanager
async def a_peer(on_request: OnRequest) -> AsyncIterator[ScriptedPeer]:
    """A listening peer. An answer of None closes the connection."""
    peer = ScriptedPeer(on_request)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.address = PeerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield peer
    finally:
        server.close()
        await asyncio.sleep(0)
