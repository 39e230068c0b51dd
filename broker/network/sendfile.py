"""Sends file regions by os.sendfile on the transport's own socket, beside the transport.

uvloop has no `loop.sendfile`, and an asyncio one would need a task. So a connection that has file regions to send hands everything from the
first region on to its `FileSender`. Rules that make two writers on one socket safe: the sender writes only while the transport's write
buffer is empty, and the connection writes nothing to the transport until the sender called `on_sent`. It waits for room with `add_writer`
on a duplicate of the descriptor, because the loop refuses a descriptor that a transport uses.

A turn of the loop sends at most SENDER_TURN_BYTES of one connection. Bytes that are not in the page cache are pulled in by a thread first,
so one consumer that reads old data never stalls the others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from broker.network import gather
from broker.network.request_channel import Part, Parts
from broker.network.sizes import CHUNK_BYTES, PACED_BYTES, PACKET_BYTES, SENDER_TURN_BYTES
from broker.security.client import Client
from protocol.compiled import compiled
from storage.segment.file_region import FileRegion

logger = logging.getLogger(__name__)

SHORT_FILE: Final = "the file is shorter than the log said"
_native = compiled("broker.network.native")
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)


def piece_of(sock: socket.socket | None) -> int:
    """How many bytes of a file this socket is best given at once."""
    if sock is not None and hasattr(socket, "TCP_CONGESTION"):
        try:
            if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr"):
                return PACED_BYTES
        except OSError:
            pass
    return SENDER_TURN_BYTES


def send_pieces(out: int, source: int, position: int, length: int, piece: int, packet: int) -> int:
    """Send so much of a file in pieces, the last `packet` bytes in one, until the socket takes no more.

    Returns the bytes that have left, 0 where the file ends. Raises OSError when none has: BlockingIOError when there is no room.
    What fails later will fail again when the rest is sent.
    """
    left = length
    try:
        while left:
            asked = left if left < piece or left <= packet else piece
            sent = os.sendfile(out, source, position, asked)
            position += sent
            left -= sent
            if sent != asked:
                break
    except OSError:
        if left == length:
            raise
    return length - left


_send_pieces: Callable[[int, int, int, int, int, int], int] = send_pieces if _native is None else _native.send_pieces


def _pull_in(region: FileRegion, position: int, length: int) -> None:
    """Runs in a thread: read the range into the page cache."""
    descriptor = region.file.fileno()
    for at in range(position, position + length, CHUNK_BYTES):
        os.pread(descriptor, min(CHUNK_BYTES, position + length - at), at)


class Owner(Protocol):
    """The connection whose answers are sent."""

    client: Client

    def touch(self) -> None:
        """Something left."""

    def on_sent(self) -> None:
        """There is nothing left to send."""

    def abort(self) -> None:
        """Close now: sending failed."""


class FileSender:
    """What a connection has to send from its first file region on. Made at the first one, kept for the next."""

    __slots__ = ("_closed", "_connection", "_loop", "_parts", "_piece", "_position", "_pulling", "_sock", "_transport", "_warm", "_writer")

    def __init__(
        self, connection: Owner, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, sock: socket.socket | None
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._transport = transport
        self._sock = sock
        self._piece = piece_of(sock)
        self._parts: deque[Part] = deque()
        self._position = 0  # bytes of the first part that are sent
        self._warm = 0  # bytes of the first part that are known to be in the page cache
        self._pulling: asyncio.Future[None] | None = None
        self._writer = -1
        self._closed = False

    def send(self, parts: Parts) -> bool:
        """Send `parts` behind what is queued; whether all of it has left. If not, `on_sent` of the connection will be called."""
        was_idle = not self._parts
        self._parts += gather.join(parts, self._sock is not None)
        return was_idle and self._send_queued()

    def pump(self) -> None:
        """Go on: there is room, or bytes came from the disk."""
        if not self._parts:
            self._stop_waiting()
        elif self._send_queued():
            self._connection.on_sent()

    def _send_queued(self) -> bool:
        """Send what the socket takes of what is queued, at most SENDER_TURN_BYTES; whether nothing is left."""
        if self._closed or self._pulling is not None or self._transport.get_write_buffer_size():
            return False  # the thread, or resume_writing of the connection, calls again
        budget = SENDER_TURN_BYTES
        parts = self._parts
        try:
            while parts and budget > 0:
                part = parts[0]
                if isinstance(part, FileRegion):
                    length = part.length
                    asked = min(length - self._position, budget)
                    if self._position >= self._warm and not self._ensure_cached(part, asked):
                        return False
                    asked = min(asked, self._warm - self._position)
                    sent = self._send_region(part, asked)
                else:
                    length = len(part)
                    asked = min(length - self._position, budget)
                    sent = self._send_memory(part, asked, more=len(parts) > 1)
                budget -= sent
                self._position += sent
                if self._position == length:
                    parts.popleft()
                    self._position = self._warm = 0
                if sent < asked or (self._sock is None and self._transport.get_write_buffer_size()):
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error, parts[0])
            return False
        self._connection.touch()
        if parts:
            self._wait_for_room()
            return False
        # The writer stays: the next answer may have to wait at once, and one that is not needed is called once and ends.
        return True

    def _fail(self, error: OSError, part: Part | None) -> None:
        connection_id = self._connection.client.connection_id
        if error.errno == errno.EIO and isinstance(part, FileRegion):  # no socket says that
            logger.error("%s cannot be read: %s; closing connection %s, which waits for it", part.file.path, error.strerror, connection_id)
        else:
            logger.info("%s: sending files failed, %d bytes were queued: %s; closing the connection", connection_id, self.unsent, error)
        self._connection.abort()

    @property
    def unsent(self) -> int:
        """Bytes that are queued here."""
        return sum(len(part) for part in self._parts) - self._position

    def close(self) -> None:
        """The connection is gone: forget the rest and the files."""
        self._closed = True
        self._stop_waiting()
        self._parts.clear()
        self._sock = None

    def _send_region(self, region: FileRegion, length: int) -> int:
        position = region.position + self._position
        if self._sock is not None:
            sent = _send_pieces(self._sock.fileno(), region.file.fileno(), position, length, self._piece, PACKET_BYTES)
            if sent == 0:
                raise OSError(errno.EIO, SHORT_FILE)
            return sent
        data = region.file.pread(min(length, CHUNK_BYTES), position)
        if not data:
            raise OSError(errno.EIO, SHORT_FILE)
        self._transport.write(data)
        return len(data)

    def _send_memory(self, part: bytes | bytearray | memoryview, length: int, more: bool) -> int:
        data = part if length == len(part) else memoryview(part)[self._position : self._position + length]
        if self._sock is not None:
            # Without MSG_MORE a header would leave as a packet of its own (TCP_NODELAY).
            return self._sock.send(data, _MSG_MORE if more else 0)
        self._transport.write(data)
        return length

    def _ensure_cached(self, region: FileRegion, length: int) -> bool:
        """Whether the next `length` bytes are in the page cache; if not, a thread fetches them and calls `pump`."""
        position = region.position + self._position
        self._warm = self._position + length
        if region.end_is_cached or region.file.is_cached(length, position):
            return True
        self._stop_waiting()
        self._pulling = self._loop.run_in_executor(None, _pull_in, region, position, length)
        self._pulling.add_done_callback(self._on_pulled_in)
        return False

    def _on_pulled_in(self, pulling: asyncio.Future[None]) -> None:
        self._pulling = None
        # A disk that fails here fails again in sendfile, which tells the client by closing.
        if not pulling.cancelled():
            pulling.exception()
        self.pump()

    def _wait_for_room(self) -> None:
        sock = self._sock
        if sock is None:
            # The transport holds bytes and calls resume_writing, or this turn's share is used up.
            if not self._transport.get_write_buffer_size():
                self._loop.call_soon(self.pump)
        elif self._writer < 0:
            self._writer = os.dup(sock.fileno())
            self._loop.add_writer(self._writer, self.pump)

    def _stop_waiting(self) -> None:
        if self._writer >= 0:
            # In this order: epoll watches the open file, not the number, and would report it for ever.
            self._loop.remove_writer(self._writer)
            os.close(self._writer)
            self._writer = -1
