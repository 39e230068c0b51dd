"""Accepts the connections of the console over TLS, and bounds those whose handshake is not complete.

uvicorn lets the event loop accept, which passes a connection on only after its handshake. Until then the server cannot end it, and
clients that connect and send nothing would take all files of the process. `ottla console` runs this server. After the handshake
`connections` has the limits.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

import uvicorn

from ottla.console.connections import BoundedRequests

MOST_HANDSHAKES: Final = 100
"""Handshakes at a time. One more takes the place of the oldest, so clients that are slow on purpose do not lock out others."""

HANDSHAKE_SECONDS: Final = 10.0
"""Time from the accept to the end of the handshake, seconds."""

RETRY_SECONDS: Final = 0.1
"""Time until the next attempt if no connection can be accepted, because no file can be opened for example, seconds."""


class HandshakingServer(uvicorn.Server):
    """uvicorn's server. With TLS it accepts the connections itself; without TLS it is that of uvicorn."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[socket.socket, asyncio.Task[None]] = {}  # the oldest first

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server."""
        context = self.config.ssl
        if context is None:
            await super().startup(sockets)
            return
        await super().startup([])
        self._accepting = [asyncio.create_task(self._accept(listening, context)) for listening in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn.Server."""
        ended = [*self._accepting, *self._handshakes.values()]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket, context: ssl.SSLContext) -> None:
        """Accept connections until the server stops."""
        loop = asyncio.get_running_loop()
        listening.listen(self.config.backlog)
        listening.setblocking(False)
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._handshakes[accepted] = loop.create_task(self._shake_hands(accepted, context))
            if len(self._handshakes) > MOST_HANDSHAKES:
                next(iter(self._handshakes.values())).cancel()
            await asyncio.sleep(0)  # both tasks run, so the oldest one has begun whenever it is cancelled

    async def _shake_hands(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        """Complete a handshake; the event loop passes the connection to its protocol, or closes it."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._protocol, accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE_SECONDS)
        except OSError:
            pass  # the client does not speak TLS, is too slow, or has left
        finally:
            del self._handshakes[accepted]

    def _protocol(self) -> BoundedRequests:
        """The protocol of a new connection."""
        return BoundedRequests(self.config, self.server_state, self.lifespan.state)
