"""Writes the answers of one connection to its transport, or passes them to a `FileSender` when file regions are among them.

A `Connection` owns one. Answers to the last read wait in `unsent` until the processor has handled all connections that were read in this
turn of the loop (`Processor.send_soon` gives the reason). All other answers are written at once, after them.

Invariants:

* While `unsent` holds answers, only those may be written next.
* While the sender sends file regions, nothing is written to the transport. The high-water mark is 0, so PAUSED means that it holds bytes.

A transport of TLS encrypts every write at once, for the transport below. How much the latter holds is unknown, and the connection is not
paused for that. So the sender sends large answers over TLS, too, a piece at a time.
"""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import sys
import termios
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast, final

from ottla.broker.network import gather
from ottla.broker.network.gather import UNCOPIED_BYTES
from ottla.broker.network.request_channel import Answer, Parts, memory_of
from ottla.broker.network.sendfile import CHUNK_BYTES, TAIL_BYTES, FileSender, Owner
from ottla.broker.network.timings import NO_TIMINGS, Timing, on_sent, on_write

_ACKNOWLEDGED_AT: Final = 120
"""Position of the 64-bit `tcpi_bytes_acked` in the answer to TCP_INFO (linux/tcp.h)."""
_join: Final[Callable[[Parts], bytes]] = b"".join  # type: ignore[assignment]  # there are no file regions where it is called
_NO_TRANSPORT: Final = asyncio.Transport()


@final
class AnswerWriter:
    """The writer of one connection. `timings` belong to measured requests whose answers are in the next write, or are being sent."""

    __slots__ = ("_has_regions", "_is_large", "_is_tls", "_loop", "_owner", "_sender", "is_sending", "sock", "timings", "transport",
                 "unsent")  # fmt: skip

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, sock: socket.socket | None) -> None:
        """`sock` is the transport's socket when file regions may be sent beside the transport; None with TLS."""
        self._owner: Owner | None = owner  # None once the connection is gone
        self._loop = loop
        self.sock = sock
        self.transport: asyncio.Transport = _NO_TRANSPORT
        self.unsent: Parts | None = None
        self.timings: tuple[Timing, ...] = NO_TIMINGS
        self.is_sending = False
        """Whether the sender is sending. Afterwards it calls `on_sent` of the connection."""
        self._has_regions = False  # whether file regions are among the parts gathered for the next write
        self._is_large = False  # whether they include a large answer, whose parts are not joined
        self._is_tls = False
        self._sender: FileSender | None = None

    def begin(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport of the new connection. For a BufferedProtocol over a socket it is always a Transport."""
        self.transport = cast("asyncio.Transport", transport)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        # Pause at the first byte that the transport holds. A TLS transport compares with >=, and would pause forever at 0.
        self.transport.set_write_buffer_limits(high=1 if self._is_tls else 0, low=0)

    @property
    def was_made(self) -> bool:
        """Whether the connection was established."""
        return self.transport is not _NO_TRANSPORT

    @property
    def undelivered(self) -> int:
        """Bytes of answers that the client's host has not received yet, here and in the kernel; with TLS only those here."""
        found = self.transport.get_write_buffer_size()
        if self._sender is not None:
            found += self._sender.unsent
        if self.sock is not None:
            # Also for a transport that closes after its bytes are sent. The descriptor may be closed a moment before `connection_lost`.
            with suppress(OSError, ValueError):
                found += int.from_bytes(fcntl.ioctl(self.sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return found

    @property
    def delivered(self) -> int | None:
        """A number that changes when the client's host receives more: the bytes that it has acknowledged, or else those that it has not.

        None while the answers wait for a thread of the broker.
        """
        if self._sender is not None and self._sender.awaits_thread:
            return None
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError, ValueError):
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED_AT + 8)
                acknowledged = int.from_bytes(info[_ACKNOWLEDGED_AT:], sys.byteorder)
                if acknowledged:  # a system that does not count these says 0
                    return acknowledged
        return -self.undelivered

    @property
    def has_left(self) -> bool:
        """Whether the client has closed its side."""
        sock = self.transport.get_extra_info("socket")
        if sock is None:
            return False
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def memory_bytes(self, waiting: deque[Answer] | None) -> int:
        """Bytes of memory that hold written answers, and those that wait behind them. With TLS the transport below holds up to a piece."""
        size: int = self.transport.get_write_buffer_size()
        if size and self._is_tls:
            size += CHUNK_BYTES
        if self._sender is not None:
            size += self._sender.memory_bytes()
        for answer in waiting or ():
            size += memory_of(answer)
        return size

    def append(self, parts: Parts, out: Parts) -> int:
        """Append a response, with its length, to `out`. Returns its size."""
        size, has_regions = gather.put(parts, out)
        if has_regions:
            self._has_regions = True
        if size >= UNCOPIED_BYTES:
            self._is_large = True
        return size

    def write(self, out: Parts) -> None:
        """Write the parts at once, behind those of the sender. `unsent` must be empty."""
        if not out:
            return
        if self.timings:
            on_write(self)
        if self._has_regions or self.is_sending or (self._is_tls and self._is_for_pieces(out)):
            self._has_regions = False
            sender = self._sender
            if sender is None and self._owner is not None:
                sender = self._sender = FileSender(self._owner, self._loop, self.transport, self.sock)
            if sender is not None and not sender.send(out):
                self.is_sending = True
                self._is_large = False
                return
        elif self._is_large:
            self.transport.writelines(out)  # type: ignore[arg-type]  # there are no file regions
        else:
            self.transport.write(_join(out))
        self._is_large = False
        if self.timings:
            on_sent(self)

    def _is_for_pieces(self, out: Parts) -> bool:
        """Whether the parts, which TLS encrypts, are more than a piece."""
        size = 0
        for part in out:
            size += len(part)
        return size > CHUNK_BYTES + TAIL_BYTES

    def pump(self) -> bool:
        """Continue sending after the transport had room again. Returns whether the sender is sending."""
        if self.is_sending and self._sender is not None:
            self._sender.pump()
            return True
        return False

    def on_sent(self) -> None:
        """Note that the sender has sent everything."""
        self.is_sending = False
        if self.timings:
            on_sent(self)

    def forget(self) -> None:
        """Release everything after the connection was lost."""
        self.unsent = None
        self._owner = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None
