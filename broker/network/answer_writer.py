"""Writes the answers of one connection to its transport, or hands them to a `FileSender` when parts of files are among them.

The base of `Connection`, between it and `FrameReader`. Answers to what was just read wait in `_unsent` until the processor lets all
connections write that were read in this turn of the loop (`Processor.send_soon` says why); everything else is written at once, behind them.

Invariants:
* Nothing is written while `_unsent` holds answers but those.
* While the sender is at work on file regions nothing is written to the transport. The high-water mark is 0: PAUSED is "it holds bytes".
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.network.connection_state import CLOSED, CLOSING, PAUSED, SENDING
from broker.network.frame_reader import FrameReader
from broker.network.gather import gather, gather_fetch
from broker.network.request_channel import Parts
from broker.network.sendfile import FileSender
from broker.network.timings import NO_TIMINGS, on_sent, on_write
from broker.security.client import Client

if TYPE_CHECKING:
    from broker.network.processor import Processor

logger = logging.getLogger(__name__)

TURN_BYTES: Final = 256 * 1024
"""Answers of one read are written at once, but after about this many bytes other connections have their turn first."""
_OUT_OF_THE_ORDINARY: Final = CLOSED | SENDING
_join: Final[Callable[[Parts], bytes]] = b"".join  # type: ignore[assignment]  # there are no file regions where it is called


class AnswerWriter(FrameReader):
    """See the module. `client` is what handlers may know."""

    __slots__ = ("_has_regions", "_sender", "_sock", "_state", "_transport", "_unsent", "client", "timings")

    def __init__(self, processor: Processor, client: Client, sock: socket.socket | None) -> None:
        """`sock` is the transport's own socket when file regions may be sent around the transport; None on TLS."""
        super().__init__(processor)
        self.client = client
        self.timings = NO_TIMINGS
        self._sock = sock
        self._state = 0
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self._unsent: Parts | None = None
        self._has_regions = False  # whether file regions are among the parts gathered for the next write
        self._sender: FileSender | None = None

    @property
    def was_made(self) -> bool:
        """Whether it ever had a transport."""
        return self._transport is not _NO_TRANSPORT

    @property
    def undelivered(self) -> int:
        """Bytes of answers that the client's host has not taken yet, here and in the kernel; on TLS here only."""
        found = self._transport.get_write_buffer_size()
        if self._sender is not None:
            found += self._sender.unsent
        if self._sock is not None:
            # Also of a transport that closes once its bytes have left; the descriptor may be gone a moment before we are told.
            with suppress(OSError, ValueError):
                found += int.from_bytes(fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return found

    def on_sent(self) -> None:
        """The sender has nothing left."""
        raise NotImplementedError

    def append_parts(self, parts: Parts, out: Parts) -> int:
        """Puts one response behind those in `out`, or sends both at once when it is large; returns its size."""
        size = gather_fetch(parts, out)
        if size:
            self._has_regions = True
        else:
            size, has_regions = gather(parts, out)
            if has_regions:
                self._has_regions = True
        if size >= TURN_BYTES:
            self._write(out)
            out.clear()
        return size

    def send_unsent(self) -> None:
        """Write the answers that wait. Fails for itself: the processor has those of others to send."""
        out = self._unsent
        if out is not None:
            self._unsent = None
            try:
                if self.timings or self._has_regions or self._state & _OUT_OF_THE_ORDINARY:
                    self._write(out)
                else:
                    self._transport.write(_join(out))
            except Exception:
                self._fail()

    def _write(self, out: Parts) -> None:
        """Writes the parts in one go. Nothing is unsent."""
        if not out or self._state & CLOSED:
            return
        if self.timings:
            on_write(self)
        if self._has_regions or self._state & SENDING:
            self._has_regions = False
            sender = self._sender
            if sender is None:
                sender = self._sender = FileSender(self, self._processor.loop, self._transport, self._sock)
            if not sender.send(out):
                self._state |= SENDING
                return
        else:
            self._transport.write(_join(out))
        if self.timings:
            on_sent(self)

    def pause_writing(self) -> None:
        self._state |= PAUSED

    def eof_received(self) -> None:
        """The client sends no more, and the transport closes itself now; what it asked before is answered."""
        self.send_unsent()

    def _fail(self) -> None:
        """In an except block: a bug of ours costs this connection, and nobody else."""
        logger.exception("%s: a request failed in an unforeseen way; closing the connection", self.client.connection_id)
        self.abort()

    def abort(self) -> None:
        """Close now."""
        self._state |= CLOSING | CLOSED
        self._transport.abort()

    def forget(self) -> None:
        super().forget()
        self._unsent = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None


_NO_TRANSPORT: Final = asyncio.Transport()
