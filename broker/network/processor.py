"""Owns connections: their receive buffer, the answers that are ready to be sent, and the expiry of idle ones.

`num.network.threads` processors share the loop, and each acceptor assigns connections to them in turn. Answers that an event completes
(`RequestChannel.wake`) are sent together in one callback of the next loop turn. So the completion of a request never runs a handler or a
write inside another call. Answers to the last read (`send_soon`) are sent after every connection with received bytes was handled. So a
client that waits for several answers is woken once, not for each answer. On a virtual machine, waking the receiver takes a quarter of the
time of a small Produce (`perf`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from ottla.broker.network.buffer_supplier import BufferSupplier
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.limits import FULL_WINDOW_BYTES, MAX_UNSENT, RECEIVE_BUFFER_BYTES, UNHANDLED_FREE_BYTES, NetworkLimits
from ottla.broker.network.offenders import Offenders, describe_length
from ottla.broker.network.request_channel import RequestChannel
from ottla.broker.quotas.throttle import Quotas
from ottla.broker.security.authorizer import AllowAll, Authorizer
from ottla.broker.security.client import Client
from ottla.pauses import pause
from ottla.protocol.cursors import fields

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection

logger = logging.getLogger(__name__)


@final
class Processor:
    """One processor. The hot path reads the plain attributes."""

    __slots__ = (
        "_offenders",
        "_on_closed",
        "_unsent",
        "authorizer",
        "buffer",
        "buffers",
        "channel",
        "clock_ns",
        "connections",
        "data",
        "expired_connections",
        "handler",
        "loop",
        "quotas",
        "request_max_bytes",
        "view",
        "window",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: RequestHandler,
        channel: RequestChannel,
        limits: NetworkLimits,
        clock_ns: Callable[[], int],
        offenders: Offenders,
        on_closed: Callable[[Connection], None],
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """`handler` is the first handler of new connections. `authorizer` and `quotas` limit clients; without them, everything is
        allowed."""
        self.loop = loop
        self.handler = handler
        self.authorizer = authorizer or AllowAll()
        self.quotas = quotas or Quotas()
        self.channel = channel
        self.clock_ns = clock_ns
        self.request_max_bytes: int = limits.socket_request_max_bytes
        self.buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.data: fields.View = self.view  # the same for compiled code
        self.buffers = BufferSupplier(limits.queued_max_request_bytes)
        self.window = self.view[:FULL_WINDOW_BYTES]
        self.connections: set[Connection] = set()
        self.expired_connections = 0
        self._offenders = offenders
        self._on_closed = on_closed
        self._unsent: list[Connection] = []

    @property
    def response_queue_size(self) -> int:
        """Connections with answers that are sent in the next loop turn (ResponseQueueSize)."""
        return len(self.connections.intersection(self.channel.woken)) + len(self._unsent)

    def send_soon(self, connection: Connection) -> None:
        """Have the connection write its `unsent` answers after other connections that were read in this loop turn are handled."""
        unsent = self._unsent
        unsent.append(connection)
        if len(unsent) == 1:
            self.channel.at_turn_end(self._send_unsent)
        elif len(unsent) == MAX_UNSENT:
            self._send_unsent()

    def _send_unsent(self) -> None:
        unsent = self._unsent
        self._unsent = []
        for connection in unsent:
            connection.send_unsent()

    def on_connection_made(self, connection: Connection) -> None:
        self.connections.add(connection)

    def on_connection_lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._on_closed(connection)

    def on_bad_length(self, client: Client, size: int, max_bytes: int, head: bytes) -> None:
        """Report a connection that is closed because of the bytes in place of a request length."""
        reason = describe_length(size, max_bytes, head, is_unauthenticated=max_bytes != self.request_max_bytes)
        self.report(client, reason)

    def report(self, client: Client, reason: str) -> None:
        """Log one line about a client, unless its host had many lately."""
        line = f"{client.connection_id} on listener {client.listener_name}: {reason}; closing the connection"
        self._offenders.report(client.client_host, line, self.clock_ns() / 1e9)

    async def end_late(self) -> None:
        """Closes connections whose large requests arrive slowly, if others wait for memory, and those that keep too much of small ones.

        Closing thousands takes longer than a turn of the event loop may.
        """
        channel = self.channel
        is_wanted = channel.frame_memory.is_wanted
        kept = channel.unhandled_bytes
        is_crowded = kept > channel.most_unhandled_bytes
        is_much = is_crowded or kept > UNHANDLED_FREE_BYTES
        if not is_wanted and not is_much:
            return
        for connection in list(self.connections):
            await pause()
            now_ns: int = self.clock_ns()
            if is_wanted and connection.is_late(now_ns):
                self._end(connection, "a large request arrives too slowly, and others wait for memory")
            elif is_much and connection.holds_too_long(now_ns):
                if is_crowded:
                    self._end(connection, "requests are unfinished, or wait behind one that does, and take memory that others need")
                elif connection.has_left_request:
                    connection.abort()

    def _end(self, connection: Connection, reason: str) -> None:
        self.report(connection.client, reason)
        connection.abort()

    async def expire_idle(self, max_idle_ms: int) -> None:
        """Closes connections that were idle for `max_idle_ms` (connections.max.idle.ms; negative: never), the most idle first.

        A client that waits for its throttle time is idle only if it has left. Unused memory for large requests is dropped, too.
        """
        self.buffers.clear()
        if max_idle_ms < 0:
            return
        oldest = self.clock_ns() - max_idle_ms * 1_000_000
        silent = [connection for connection in self.connections if connection.last_active_ns <= oldest]
        silent.sort(key=lambda connection: connection.last_active_ns)
        for connection in silent:
            await pause()
            if connection.is_closed or connection.last_active_ns > oldest or (connection.is_muted and not connection.has_left):
                continue
            logger.debug("%s: idle for connections.max.idle.ms, closing", connection.client.connection_id)
            self.expired_connections += 1
            connection.abort()
