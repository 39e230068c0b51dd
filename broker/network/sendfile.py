"""Sends file regions with os.sendfile on the transport's own socket, beside the transport. With TLS the transport sends all.

uvloop has no `loop.sendfile`, and asyncio's would need a task. So a connection passes everything from the first file region on to its
`FileSender`. Two rules make two writers on one socket safe. The sender writes only while the transport's write buffer is empty. The
connection writes nothing to the transport until the sender has called `on_sent`. The sender waits for room with `add_writer` on a duplicate
of the descriptor, because the loop refuses the descriptor of a transport. When connections have all that they may, it looks now and then.

In a turn of the loop at most SENDER_TURN_BYTES of one connection are sent. A thread first reads bytes that are not in the page cache, so a
consumer of old data does not delay the others. Another thread converts records for old consumers, each piece after the previous one was
sent.

With TLS there is no socket to write to. Queued memory and files are read into pieces of CHUNK_BYTES, which the transport encrypts. The
sender checks the room of the transport after each piece, so a slow client costs the memory of about two pieces. Large answers without files
are sent like this, too (`AnswerWriter`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, final

from ottla.broker.network import gather
from ottla.broker.network.descriptors import duplicate
from ottla.broker.network.gather import PACKET_BYTES, PAGE_BYTES
from ottla.broker.network.request_channel import Part, Parts, memory_of
from ottla.broker.security.client import Client
from ottla.protocol.compiled import compiled
from ottla.protocol.cursors import fields
from ottla.storage.segment.converted_region import ConvertedRegion
from ottla.storage.segment.file_region import FileRegion

logger = logging.getLogger(__name__)

PACED_BYTES: Final = 15 * PAGE_BYTES
"""Bytes per call for a socket with pacing: one packet. A second packet in a call would wait for a timer, and every later one, too.

For 1 MiB over loopback with BBR the kernel needs 500 µs in one call and 130 in such pieces; without pacing 133 and 142.
"""
CHUNK_BYTES: Final = 128 * 1024
"""Bytes per read of a thread, and per write to a transport that encrypts them; a multiple of the largest record of TLS, 16 KiB."""
TAIL_BYTES: Final = 16 * 1024
"""The end of an answer that is written to such a transport with the piece before it, in bytes: at most one record more."""
SENDER_TURN_BYTES: Final = 1024 * 1024
"""Bytes of files that one connection sends per turn of the loop."""

_LOOKS_AGAIN_SECONDS: Final = 0.05

SHORT_FILE: Final = "the file is shorter than the log said"
_native = compiled("ottla.broker.network.native")
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)


def piece_of(sock: socket.socket | None) -> int:
    """The best number of bytes per call for this socket."""
    if sock is not None and hasattr(socket, "TCP_CONGESTION"):
        try:
            if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr"):
                return PACED_BYTES
        except OSError:
            pass
    return SENDER_TURN_BYTES


def send_pieces(out: int, source: int, position: int, length: int, piece: int, packet: int) -> int:
    """Send a part of a file in pieces, the last `packet` bytes in one piece, until the socket accepts no more.

    Returns the number of bytes sent; 0 at the end of the file. Raises OSError if none was sent: BlockingIOError when there is no room. An
    error after the first piece is not raised, because sending the rest will fail again.
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
    """Read the range into the page cache. For a thread."""
    descriptor = region.file.fileno()
    for at in range(position, position + length, CHUNK_BYTES):
        os.pread(descriptor, min(CHUNK_BYTES, position + length - at), at)


class Owner(Protocol):
    """The connection whose answers are sent."""

    client: Client

    def touch(self) -> None:
        """Record a transfer."""

    def on_sent(self) -> None:
        """Called when everything was sent."""

    def abort(self) -> None:
        """Close the connection, because sending failed."""


@final
class FileSender:
    """Sends a connection's answers from a file region on. Made for the first one, and reused."""

    __slots__ = ("_closed", "_connection", "_loop", "_parts", "_position", "_pulling", "_sock", "_timer", "_transport", "_warm", "_writer",
                 "piece")  # fmt: skip

    def __init__(
        self, connection: Owner, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, sock: socket.socket | None
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._transport = transport
        self._sock = sock
        self.piece = piece_of(sock)
        self._parts: deque[Part] = deque()
        self._position = 0  # bytes of the first part that were sent
        self._warm = 0  # bytes of the first part that are in the page cache for certain
        self._pulling: asyncio.Future[Any] | None = None
        self._writer = -1
        self._timer: asyncio.TimerHandle | None = None
        """The next look at a socket for which no descriptor was left to wait with."""
        self._closed = False

    def send(self, parts: Parts) -> bool:
        """Send `parts` after the queued ones. Returns whether everything was sent. If not, `on_sent` of the connection is called later."""
        was_idle = not self._parts
        self._parts += [part for part in parts if len(part)] if self._sock is None else gather.join(parts)
        return was_idle and self._send_queued()

    def pump(self) -> None:
        """Continue when there is room, or bytes were read from the disk."""
        if not self._parts:
            self._stop_waiting()
        elif self._send_queued():
            self._connection.on_sent()

    def _send_queued(self) -> bool:
        """Send queued parts as far as the socket accepts them, at most SENDER_TURN_BYTES. Returns whether nothing is left."""
        if self._closed or self._pulling is not None or self._transport.get_write_buffer_size():
            return False  # the thread, or resume_writing of the connection, calls again
        budget = SENDER_TURN_BYTES
        parts = self._parts
        try:
            while parts and budget > 0:
                part = parts[0]
                if isinstance(part, ConvertedRegion):
                    begun = part.take_begun()
                    if not begun:
                        self._convert(part)
                        return False
                    parts.appendleft(begun)
                    continue
                if self._sock is None:
                    sent = self._write_piece()
                    if not sent or self._pulling is not None:
                        return False
                    budget -= sent
                    if self._transport.get_write_buffer_size():
                        break
                    continue
                if isinstance(part, FileRegion):
                    length = part.length
                    asked = min(length - self._position, budget)
                    if self._position >= self._warm and not self._ensure_cached(part, asked):
                        return False
                    asked = min(asked, self._warm - self._position)
                    sent = self._send_region(self._sock, part, asked)
                else:
                    length = len(part)
                    asked = min(length - self._position, budget)
                    sent = self._send_memory(self._sock, part, asked, more=len(parts) > 1)
                budget -= sent
                self._position += sent
                if self._position == length:
                    parts.popleft()
                    self._position = self._warm = 0
                if sent < asked:
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
        # The writer stays: the next answer may have to wait at once, and an unneeded writer is called once and removed.
        return True

    def _fail(self, error: OSError, part: Part | None) -> None:
        connection_id = self._connection.client.connection_id
        if error.errno == errno.EIO and isinstance(part, FileRegion):  # sockets do not raise this
            logger.error("%s cannot be read: %s; closing connection %s, which waits for it", part.file.path, error.strerror, connection_id)
        else:
            logger.info("%s: sending files failed, %d bytes were queued: %s; closing the connection", connection_id, self.unsent, error)
        self._connection.abort()

    @property
    def unsent(self) -> int:
        """Number of queued bytes."""
        return sum(len(part) for part in self._parts) - self._position

    def memory_bytes(self) -> int:
        """Bytes of queued parts that are in memory. Each counts until all of it was sent."""
        size = 0
        for part in self._parts:
            size += memory_of(part)
        return size

    @property
    def awaits_thread(self) -> bool:
        """Whether a thread reads or converts what is sent next."""
        return self._pulling is not None

    def close(self) -> None:
        """Release the rest and the files after the connection was lost."""
        self._closed = True
        if self._pulling is not None and self._parts and isinstance(self._parts[0], ConvertedRegion):
            self._pulling.cancel()  # it may wait for memory
        self._stop_waiting()
        self._parts.clear()
        self._sock = None

    def _send_region(self, sock: socket.socket, region: FileRegion, length: int) -> int:
        position = region.position + self._position
        sent = _send_pieces(sock.fileno(), region.file.fileno(), position, length, self.piece, PACKET_BYTES)
        if sent == 0:
            raise OSError(errno.EIO, SHORT_FILE)
        return sent

    def _send_memory(self, sock: socket.socket, part: bytes | bytearray | memoryview, length: int, more: bool) -> int:
        data = part if length == len(part) else memoryview(part)[self._position : self._position + length]
        # Without MSG_MORE a header would be a separate packet (TCP_NODELAY).
        return sock.send(data, _MSG_MORE if more else 0)

    def _write_piece(self) -> int:
        """Have the transport send the next piece of the queue, up to what a thread has to read first. Returns the number of bytes.

        One write for a header, its records and what follows: each write is a record of TLS, a system call, a packet, and a wake-up of the
        client.
        """
        parts = self._parts
        size = self._piece_size()
        room = fields.room_for(size)
        view = memoryview(room)
        at = 0
        while at < size:
            part = parts[0]
            length = len(part)
            end = at + min(length - self._position, size - at)
            if isinstance(part, FileRegion):
                if not self._read(part, view[at:end]):
                    break
            else:
                view[at:end] = memoryview(part)[self._position : self._position + end - at]  # type: ignore[arg-type]  # nor a ConvertedRegion
            self._position += end - at
            at = end
            if self._position == length:
                parts.popleft()
                self._position = self._warm = 0
        if at:
            self._transport.write(room if at == size else view[:at])
        return at

    def _piece_size(self) -> int:
        """CHUNK_BYTES, or all that is queued if it is little more."""
        size = -self._position
        for part in self._parts:
            if isinstance(part, ConvertedRegion):
                break
            size += len(part)
            if size > CHUNK_BYTES + TAIL_BYTES:
                return CHUNK_BYTES
        return size

    def _read(self, region: FileRegion, room: memoryview) -> bool:
        """Read the next bytes of the first part. Returns False if they are not in the page cache, and a thread reads them."""
        length = len(room)
        at = region.position + self._position
        if self._position + length <= self._warm:
            if os.preadv(region.file.fileno(), [room], at) != length:
                raise OSError(errno.EIO, SHORT_FILE)
            return True
        if gather.read_cached(region if length == region.length else FileRegion(region.file, at, length), room):
            return True
        asked = min(region.length - self._position, SENDER_TURN_BYTES)
        self._warm = self._position + asked
        self._pull(region, at, asked)
        return False

    def _ensure_cached(self, region: FileRegion, length: int) -> bool:
        """Whether the next `length` bytes are in the page cache. If not, a thread reads them and then calls `pump`."""
        position = region.position + self._position
        self._warm = self._position + length
        if region.end_is_cached or region.file.is_cached(length, position):
            return True
        self._pull(region, position, length)
        return False

    def _pull(self, region: FileRegion, position: int, length: int) -> None:
        """Have a thread read the range into the page cache, which then calls `pump`."""
        self._stop_waiting()
        self._pulling = self._loop.run_in_executor(None, _pull_in, region, position, length)
        self._pulling.add_done_callback(self._on_pulled_in)

    def _convert(self, region: ConvertedRegion) -> None:
        """Have a thread convert the next piece of the first part, which then calls `pump`."""
        self._stop_waiting()
        self._pulling = region.expand(region.next_piece)
        self._pulling.add_done_callback(self._on_converted)

    def _on_converted(self, pulling: asyncio.Future[bytearray]) -> None:
        self._pulling = None
        parts = self._parts
        if pulling.cancelled():
            return
        error = pulling.exception()  # retrieved in any case, or asyncio logs it
        if self._closed:
            return
        region = parts.popleft()
        if isinstance(error, OSError):
            logger.error("records for %s cannot be read: %s; closing the connection", self._connection.client.connection_id, error)
            self._connection.abort()
        elif error is not None:
            logger.error(
                "records for %s cannot be converted; closing the connection", self._connection.client.connection_id, exc_info=error
            )
            self._connection.abort()
        else:
            assert isinstance(region, ConvertedRegion)
            region.report()
            if len(region):
                parts.appendleft(region)
            parts.appendleft(pulling.result())
            self.pump()

    def _on_pulled_in(self, pulling: asyncio.Future[None]) -> None:
        self._pulling = None
        # If the disk fails here, it fails again in sendfile, and the connection is closed.
        if not pulling.cancelled():
            pulling.exception()
        self.pump()

    def _wait_for_room(self) -> None:
        sock = self._sock
        if sock is None:
            # The transport holds bytes and will call resume_writing, or this turn's share is used up.
            if not self._transport.get_write_buffer_size():
                self._loop.call_soon(self.pump)
        elif self._writer < 0 and self._timer is None:
            try:
                self._writer = duplicate(sock)
            except OSError:  # none is left for this
                self._timer = self._loop.call_later(_LOOKS_AGAIN_SECONDS, self._look_again)
                return
            self._loop.add_writer(self._writer, self.pump)

    def _look_again(self) -> None:
        self._timer = None
        self.pump()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writer >= 0:
            # In this order: epoll watches the open file, not the descriptor, and would report it forever.
            self._loop.remove_writer(self._writer)
            os.close(self._writer)
            self._writer = -1
