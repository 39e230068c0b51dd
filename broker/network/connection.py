"""One client connection: bytes in, frames to the handler, answers out in request order.

A `BufferedProtocol` that the `Processor` owns. Bytes land in the processor's one shared receive buffer; a frame that is complete in it is
handled there, without a copy, in the callback that read it. What is left of a read (`_rest`: the head of an unfinished frame, or frames
that must wait) is copied into memory of the connection's own, so an idle connection holds no buffer. A frame that does not fit the shared
buffer gets a bytearray of exactly its size, but only once FIRST_BYTES of it came and at first not more than FIRST_ALLOCATION, so a length
that lies costs its sender more than it costs us.

Invariants:
* Answers leave in request order. `_waiting` holds the answers from the oldest `Pending` on.
* No frame is handled while `_state` has a bit other than APPENDED; with APPENDED only a Produce is.
* A connection that may handle nothing and has frames is not read (`_paused`), so it holds at most one read of kept bytes.
* While the sender is at work on file regions nothing is written to the transport; the transport's high-water mark is 0, so PAUSED
  stands for "the transport still holds bytes".
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from broker.network.limits import FULL_WINDOW_BYTES
from broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Completion, ConnectionInfo, Parts, Pending, Request
from broker.network.sendfile import INLINE_BYTES, FileSender, read_cached
from storage.file_region import FileRegion

if TYPE_CHECKING:
    from broker.network.processor import Processor

__all__ = ["Connection", "ConnectionInfo"]

logger = logging.getLogger(__name__)

_SIZE: Final = Struct(">i")
_size_at: Final = _SIZE.unpack_from
_prefix: Final = _SIZE.pack

FLUSH_BYTES: Final = 256 * 1024
"""Answers of one read event are written at once, but not more than about this many bytes are gathered before."""
MAX_APPENDED: Final = 128
"""Produce requests of one connection that may wait for replicas at once before the next has to wait."""
FIRST_BYTES: Final = 64 * 1024
FIRST_ALLOCATION: Final = 2 * 1024 * 1024

# Why no frame is handled now. 0: nothing in the way.
APPENDED: Final = 1  # only Produce requests that are in the log wait for their answer: the next Produce may be handled
WAITING: Final = 2  # the last request has no answer yet
QUEUED: Final = 4  # the next request waits for a handler slot
PAUSED: Final = 8  # the client does not take its answers
SENDING: Final = 16  # a file is on its way
MUTED: Final = 32  # throttled by a quota
CLOSING: Final = 64  # closed once what is queued is out
CLOSED: Final = 128


class Connection(asyncio.BufferedProtocol):
    """See the module. `info` is what handlers may know; `received_ns` is when the bytes of the request at hand were read (monotonic)."""

    __slots__ = (
        "_filled",
        "_paused",
        "_processor",
        "_request",
        "_rest",
        "_sender",
        "_sock",
        "_start",
        "_state",
        "_transport",
        "_waiting",
        "info",
        "last_active_ns",
        "received_ns",
    )

    def __init__(self, processor: Processor, info: ConnectionInfo, sock: socket.socket | None) -> None:
        """`sock` is the transport's own socket when file regions may be sent around the transport; None on TLS."""
        self.info = info
        self.received_ns = self.last_active_ns = processor.clock_ns()
        self._processor = processor
        self._sock = sock
        self._state = 0
        self._paused = False
        self._rest: bytearray | None = None
        self._start = 0  # where the unhandled bytes of _rest begin
        self._filled = 0  # bytes of _rest that came, while a large frame is read right into it; else 0
        self._request: Request | None = None  # in the request channel while QUEUED
        self._waiting: deque[Answer] | None = None
        self._sender: FileSender | None = None
        self._transport: asyncio.Transport = _NO_TRANSPORT

    # Bytes in -------------------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A BufferedProtocol over a socket always gets a Transport.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self._processor.on_connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        processor = self._processor
        rest = self._rest
        if rest is None:
            return processor.window if processor.channel.full else processor.view
        if self._filled:
            return memoryview(rest)[self._filled :]
        # The head of a frame goes to the head of the shared buffer, and what follows lands behind it.
        kept = len(rest) - self._start
        view = processor.view
        view[:kept] = memoryview(rest)[self._start :]
        return view[kept : kept + FULL_WINDOW_BYTES] if processor.channel.full else view[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        processor = self._processor
        self.received_ns = self.last_active_ns = processor.clock_ns()
        rest = self._rest
        if rest is None:
            self._process(processor.view, 0, nbytes)
        elif self._filled:
            self._filled += nbytes
            if self._filled == len(rest):
                self._on_allocation_filled(rest)
        else:
            self._rest = None
            self._process(processor.view, 0, len(rest) - self._start + nbytes)

    def eof_received(self) -> bool:
        return False

    def _process(self, view: memoryview, start: int, end: int, admitted: bool = False) -> None:
        """Handle the frames in `view`, keep what is left, and read on or not."""
        try:
            position = self._handle_frames(view, start, end, admitted)
        except Exception:
            logger.exception("%s: a request failed in an unforeseen way; closing the connection", self.info.connection_id)
            self.abort()
            return
        if position != end:
            self._keep(view, position, end)

    def _handle_frames(self, view: memoryview, start: int, end: int, admitted: bool) -> int:
        """Handles frames until one is incomplete or must wait; returns where it begins. Writes the answers once, at the end."""
        processor = self._processor
        handler = processor.handler
        channel = processor.channel
        max_bytes = processor.request_max_bytes
        out: Parts = []
        gathered = 0
        position = start
        while end - position >= 4:
            state = self._state
            if state > APPENDED:
                break
            (size,) = _size_at(view, position)
            if not 0 < size <= max_bytes:
                self._write(out)
                self._refuse(size, view[position : min(end, position + 16)])
                return end
            after = position + 4 + size
            if after > end:
                break
            if state and not self._may_produce(view, position):
                break
            if not (channel.inline or admitted):
                self._state = state | QUEUED
                break
            admitted = False
            answer = handler(view[position + 4 : after], self)
            position = after
            if not state and type(answer) is bytes:
                length = len(answer)
                out.append(_prefix(length))
                out.append(answer)
                gathered += length
                if gathered >= FLUSH_BYTES:
                    self._write(out)
                    out = []
                    gathered = 0
            else:
                self._on_answer(answer, out)
        self._write(out)
        return position if not self._state & CLOSED else end

    def _may_produce(self, view: memoryview, position: int) -> bool:
        """Whether the frame at `position` is a Produce (api key 0) that may be handled while others wait for their replicas."""
        waiting = self._waiting
        size_ok = _size_at(view, position)[0] >= 2
        return size_ok and not view[position + 4] and not view[position + 5] and waiting is not None and len(waiting) < MAX_APPENDED

    def _keep(self, view: memoryview, position: int, end: int) -> None:
        """Keeps what cannot be handled now; stops reading unless it is the head of a frame whose rest may come."""
        kept = end - position
        complete = False
        if kept >= 4 and self._state <= APPENDED:
            total = 4 + _size_at(view, position)[0]
            complete = total <= kept
            if not complete and total > len(self._processor.view) and kept >= FIRST_BYTES:
                rest = bytearray(min(total, FIRST_ALLOCATION))
                rest[:kept] = view[position:end]
                self._rest = rest
                self._start = 0
                self._filled = kept
                return
        if view.obj is self._processor.buffer:
            self._rest = bytearray(view[position:end])
            self._start = 0
        else:
            self._rest = cast("bytearray", view.obj)
            self._start = position
        if complete or self._state > APPENDED:
            self._pause()
            if self._state & QUEUED and self._request is None:
                size = _size_at(self._rest, self._start)[0]
                frame = memoryview(self._rest)[self._start + 4 : self._start + 4 + size]
                self._request = Request(self, frame, self.received_ns)
                self._processor.channel.submit(self._request)

    def _on_allocation_filled(self, rest: bytearray) -> None:
        total = 4 + _size_at(rest)[0]
        if len(rest) == total:
            self._rest = None
            self._filled = 0
            self._process(memoryview(rest), 0, total)
            return
        larger = bytearray(min(total, 2 * len(rest)))
        larger[: len(rest)] = rest
        self._rest = larger

    def _pause(self) -> None:
        if not self._paused and not self._state & CLOSED:
            self._paused = True
            self._transport.pause_reading()

    def _refuse(self, size: int, head: memoryview) -> None:
        """A length that no request has: say so once and close, as Apache Kafka does."""
        self._processor.on_bad_length(self.info, size, bytes(head))
        self.abort()

    # Answers out ----------------------------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: Answer, out: Parts) -> None:
        """Any answer but bytes with nothing in the way."""
        if isinstance(answer, Pending):
            if answer.completed:
                answer = answer.answer
            else:
                self._wait_for(answer)
                return
        if self._waiting is None:
            self._append_answer(answer, out)
        elif answer is not NO_RESPONSE:
            self._waiting.append(answer)
            if answer is CLOSE:
                self._state |= CLOSING

    def _wait_for(self, pending: Pending) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(pending)
        pending.connection = self
        if pending.occupies_slot:
            self._processor.channel.hold_slot(pending)
        self._state |= APPENDED if pending.appended else WAITING

    def on_answer_ready(self) -> None:
        """A Pending of this connection was completed; answers go out in the next loop turn, so that completing never runs a handler."""
        self._processor.wake(self)

    def run_queued(self) -> None:
        """The request channel has a slot for the request that waits there."""
        self._request = None
        self._state &= ~QUEUED
        self._resume(admitted=True)

    def run(self) -> None:
        """Send the answers that are ready and handle what waited for them. Called by the processor after `wake`."""
        waiting = self._waiting
        if waiting is not None:
            out: Parts = []
            while waiting:
                head = waiting[0]
                if isinstance(head, Pending):
                    if not head.completed:
                        break
                    head = head.answer
                waiting.popleft()
                self._append_answer(head, out)
            if not waiting:
                self._waiting = None
                self._state &= ~(APPENDED | WAITING)
            self._write(out)
        self._resume()

    def _resume(self, admitted: bool = False) -> None:
        if self._state > APPENDED:
            return
        paused = self._paused
        self._paused = False
        rest = self._rest
        if rest is not None and not self._filled:
            self._rest = None
            self._paused = paused  # so that _keep does not pause a transport that is paused
            self._process(memoryview(rest), self._start, len(rest), admitted)
            # Read on unless a frame waits: _keep left one whose rest may come, or nothing.
            if paused and not self._frame_waits():
                self._paused = False
        if paused and not self._paused and not self._state & CLOSED:
            self._transport.resume_reading()

    def _frame_waits(self) -> bool:
        """Whether what is kept holds a frame that must wait."""
        rest = self._rest
        if rest is None or self._filled:
            return False
        kept = len(rest) - self._start
        return self._state > APPENDED or (kept >= 4 and 4 + _size_at(rest, self._start)[0] <= kept)

    def _append_answer(self, answer: Completion, out: Parts) -> None:
        """Puts one answer behind those in `out`."""
        if isinstance(answer, bytes):
            out.append(_prefix(len(answer)))
            out.append(answer)
        elif isinstance(answer, list):
            self._append_parts(answer, out)
        elif answer is CLOSE:
            self._write(out)
            out.clear()
            self.close()

    def _append_parts(self, parts: Parts, out: Parts) -> None:
        size = 0
        for part in parts:
            size += len(part)
        out.append(_prefix(size))
        large = False
        for part in parts:
            if isinstance(part, FileRegion):
                if part.length <= INLINE_BYTES or self._sock is None:
                    small = read_cached(part)
                    if small is not None:
                        out.append(small)
                        continue
                large = True
            out.append(part)
        if large or size >= FLUSH_BYTES:
            self._write(out, large)
            out.clear()

    def _write(self, out: Parts, regions: bool = False) -> None:
        """Writes the parts in one go; `regions` says that some are file regions."""
        if not out or self._state & CLOSED:
            return
        if not regions and not self._state & SENDING:
            # A FileRegion is never among them: _append_parts sends those with regions=True.
            self._transport.write(b"".join(cast("list[bytes]", out)))
            return
        sender = self._sender
        if sender is None:
            sender = self._sender = FileSender(self, self._processor.loop, self._transport, self._sock)
        self._state |= SENDING
        sender.send(out)

    def pause_writing(self) -> None:
        self._state |= PAUSED

    def resume_writing(self) -> None:
        self._state &= ~PAUSED
        if self._state & SENDING and self._sender is not None:
            self._sender.pump()
        else:
            self._processor.wake(self)

    def on_sent(self) -> None:
        """The sender has nothing left."""
        self._state &= ~SENDING
        if self._state & CLOSING and not self._waiting:
            self._transport.close()
        else:
            self._processor.wake(self)

    # The end --------------------------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether an answer is owed or on its way."""
        return self._waiting is not None or bool(self._state & (QUEUED | PAUSED | SENDING))

    def mute(self) -> None:
        """Handle and read nothing more until `unmute`: throttled, or the server drains."""
        self._state |= MUTED
        self._pause()

    def unmute(self) -> None:
        """Go on."""
        self._state &= ~MUTED
        self._processor.wake(self)

    def close(self) -> None:
        """Close once what is written has left; nothing more is read or handled."""
        self._state |= CLOSING
        self._pause()
        if not self._state & SENDING:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._state |= CLOSING | CLOSED
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state |= CLOSING | CLOSED
        self._rest = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._request is not None:
            self._processor.channel.withdraw(self._request)
            self._request = None
        waiting = self._waiting
        self._waiting = None
        for pending in waiting or ():
            if isinstance(pending, Pending) and not pending.completed:
                pending.connection = None
                if pending.on_closed is not None:
                    pending.on_closed()
        self._processor.on_connection_lost(self)


_NO_TRANSPORT: Final = asyncio.Transport()
