"""One client connection: bytes in, frames to the handler, answers out in request order.

The `Processor` owns it. `FrameReader` receives the bytes; a frame that is complete in the shared receive buffer is handled there, without a
copy, in the callback that read it. What cannot be handled yet is kept and the connection is not read meanwhile. `AnswerWriter` writes.

Invariants:
* Answers leave in request order. `_waiting` holds the answers from the oldest `Pending` on.
* No frame is handled while `_state` has a bit other than APPENDED; with APPENDED only a Produce is.
* A connection that may handle nothing and has frames is not read (`_paused`), so it holds at most one read of kept bytes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from broker.network.answer_writer import TURN_BYTES, AnswerWriter
from broker.network.connection_state import APPENDED, CLOSED, CLOSING, DRAINING, PAUSED, QUEUED, SENDING, STARVED, WAITING, YIELDED
from broker.network.frame_reader import holds_frame, size_at, split
from broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Completion, Parts, Pending, Request, RequestChannel, Several
from broker.network.sendfile import FileSender
from broker.network.throttle import QuotaType
from broker.network.timings import add_timing, on_sent
from broker.security.access import Access
from broker.security.client import Client
from protocol.compiled import compiled

if TYPE_CHECKING:
    from broker.network.processor import Processor

logger = logging.getLogger(__name__)

_prefix: Final = Struct(">i").pack
_HEADER_BYTES: Final = 8  # what every request begins with: its API key, its version, its correlation id
_FETCH: Final = 1  # the API key; that of Produce is 0
_SHORT: Final = 256
_SHORT_PREFIXES: Final = [_prefix(length) for length in range(_SHORT)]
"""The lengths that answers to Produce have; to look one up costs a tenth of making it."""

ANSWER_WEIGHT: Final = 2048
"""What an answer counts besides its bytes, so that a turn handles at most 128 requests however small."""
MAX_APPENDED: Final = 128
"""Produce requests of one connection that may wait for replicas at once before the next has to wait."""


class Connection(AnswerWriter):
    """See the module. `received_ns` is when the bytes of the request at hand were read (monotonic)."""

    __slots__ = ("_paused", "_request", "_waiting", "access")

    def __init__(self, processor: Processor, client: Client, sock: socket.socket | None) -> None:
        """`sock` is the transport's own socket when file regions may be sent around the transport; None on TLS."""
        super().__init__(processor, client, sock)
        self.access = Access(processor.authorizer, client)
        self._paused = False
        self._request: Request | None = None  # in the request channel while QUEUED
        self._waiting: deque[Answer] | None = None

    # Frames in -----------------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A BufferedProtocol over a socket always gets a Transport.
        self._transport = cast("asyncio.Transport", transport)
        # Pause as soon as the transport holds a byte. A TLS transport compares with >=, and would pause for ever at 0.
        self._transport.set_write_buffer_limits(high=0 if transport.get_extra_info("sslcontext") is None else 1, low=0)
        self._processor.on_connection_made(self)

    def process(self, view: memoryview, start: int, end: int, admitted: bool = False, done: Several | None = None) -> None:
        """Handle frames until one is incomplete or must wait, keep what is left, and read on or not. The answers are written once, soon.

        `done` is what `handle_several` gave for the first of them.
        """
        if self._unsent is not None:
            self.send_unsent()
        processor = self._processor
        channel = processor.channel
        max_bytes = processor.request_max_bytes
        handle_several = processor.handle_several if end - start <= max_bytes else None
        out: Parts = []
        gathered = 0
        position = start
        last = end - 4  # where a length can begin
        try:
            while position <= last:
                state = self._state
                if done is None:
                    if state > APPENDED:
                        break
                    (size,) = size_at(view, position)
                    if size <= 0 or size > max_bytes:
                        self._write(out)
                        self._refuse(size, view[position : min(end, position + 16)])
                        return
                    begin = position + 4
                    after = begin + size
                    if after > end or (state and not self._may_produce(view, position)):
                        break
                    if not (channel.inline or admitted or channel.is_urgent(view, begin, after)):
                        self._state = state | QUEUED
                        break
                    admitted = False
                    if (
                        handle_several is not None
                        and size >= _HEADER_BYTES
                        and (kind := view[begin + 1]) <= _FETCH
                        and (kind or after < last)
                        and not view[begin]
                        and channel.inline
                    ):
                        done = handle_several(view, position, end, self)
                if done is not None:
                    answers, count, position, length = done
                    done = None
                    if length and not state:
                        if len(answers) > 1:
                            self._has_regions = True
                        out += answers
                        gathered += length + count * ANSWER_WEIGHT
                    else:
                        for answer in split(answers[0]) if length else answers:
                            gathered += self._on_answer(answer, out) + ANSWER_WEIGHT
                else:
                    answer = processor.handler(view[begin:after], self)
                    position = after
                    if state:
                        gathered += self._on_answer(answer, out) + ANSWER_WEIGHT
                    elif type(answer) is bytes:
                        length = len(answer)
                        out.append(_SHORT_PREFIXES[length] if length < _SHORT else _prefix(length))
                        out.append(answer)
                        gathered += length + ANSWER_WEIGHT
                    elif type(answer) is list:
                        gathered += self.append_parts(answer, out) + ANSWER_WEIGHT
                    else:
                        gathered += self._on_answer(answer, out) + ANSWER_WEIGHT
                if position == end:
                    break
                if gathered >= TURN_BYTES:
                    self._state |= YIELDED
                    processor.wake(self)
                    break
            if gathered >= TURN_BYTES:
                self._write(out)
            elif out:
                self._unsent = out
                processor.send_soon(self)
        except Exception:
            self._fail()
            return
        if position != end and not self._state & CLOSED:
            self._keep_or_wait(view, position, end)

    def _may_produce(self, view: memoryview, position: int) -> bool:
        """Whether the frame at `position` is a Produce (api key 0) that may be handled while others wait for their replicas."""
        waiting = self._waiting
        size_ok = size_at(view, position)[0] >= 2
        return size_ok and not view[position + 4] and not view[position + 5] and waiting is not None and len(waiting) < MAX_APPENDED

    def _keep_or_wait(self, view: memoryview, position: int, end: int) -> None:
        """Something is left: read on if it is the head of a frame, else keep it until it may be handled."""
        if self._state <= APPENDED and not holds_frame(view, position, end):
            self.keep_head(view, position, end)
            return
        self.keep_all(view, position, end)
        self._pause()
        if self._state & QUEUED and self._request is None:
            self._request = Request(self, self.first_kept_frame())
            self._processor.channel.submit(self._request)

    def starve(self) -> None:
        self._state |= STARVED
        self._pause()

    def on_room(self) -> None:
        super().on_room()
        self._state &= ~STARVED
        self._processor.wake(self)

    def _pause(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _refuse(self, size: int, head: memoryview) -> None:
        """A length that no request has: say so once and close, as Apache Kafka does."""
        self._processor.on_bad_length(self.client, size, bytes(head))
        self.abort()

    # Answers out ----------------------------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: Answer, out: Parts) -> int:
        """Any answer but bytes with nothing in the way. Returns the size of what it put into `out` or sent."""
        if isinstance(answer, Pending):
            if answer.completed:
                answer = answer.answer
            else:
                self._wait_for(answer)
                return 0
        if self._waiting is None:
            return self._append_answer(answer, out)
        if answer is not NO_RESPONSE:
            self._waiting.append(answer)
            if answer is CLOSE:
                self._state |= CLOSING
        return 0

    def _wait_for(self, pending: Pending) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(pending)
        pending.connection = self
        if pending.occupies_slot:
            self._processor.channel.hold_slot(pending)
        elif pending.waiting_bytes:
            self._processor.channel.hold_waiting(pending)
        self._state |= APPENDED if pending.appended else WAITING

    def on_answer_ready(self) -> None:
        """A Pending was completed; its answer goes out in the next loop turn, so that completing never runs a handler."""
        self._processor.wake(self)

    def run_queued(self) -> None:
        """The request channel has a slot for the request that waits there."""
        self._request = None
        self._state &= ~QUEUED
        self._resume(admitted=True)

    def run(self) -> None:
        """Send the answers that are ready and handle what waited for them. Called by the processor after `wake`."""
        self._state &= ~YIELDED
        if self._waiting is not None:
            try:
                self._send_waiting(self._waiting)
            except Exception:
                self._fail()
                return
        if self._state & DRAINING:
            self.end_drained()
        self._resume()

    def _send_waiting(self, waiting: deque[Answer]) -> None:
        """Send from the front what is ready."""
        self.send_unsent()
        self.touch()
        out: Parts = []
        while waiting:
            head = waiting[0]
            if isinstance(head, Pending):
                if not head.completed:
                    break
                if head.timing is not None:
                    add_timing(self, head.timing)
                head = head.answer
            waiting.popleft()
            self._append_answer(head, out)
        if not waiting:
            self._waiting = None
            self._state &= ~(APPENDED | WAITING)
        self._write(out)

    def _resume(self, admitted: bool = False) -> None:
        """Handle what waited, then read on unless a frame must wait again."""
        if not self._paused or self._state > APPENDED:
            return
        kept = self.take_kept()
        if kept is not None:
            self.process(*kept, admitted)
            self.release(cast("bytearray", kept[0].obj))
        # While the last request waits and nothing is kept, reading on is how we learn that the client left.
        state = self._state
        waits = self.keeps_frame() if state <= APPENDED else state & ~(APPENDED | WAITING) or self.kept_bytes
        if not waits and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _append_answer(self, answer: Completion, out: Parts) -> int:
        """Puts one answer behind those in `out`, or sends both; returns its size."""
        if isinstance(answer, bytes):
            out.append(_prefix(len(answer)))
            out.append(answer)
            return len(answer)
        if isinstance(answer, list):
            return self.append_parts(answer, out)
        if answer is CLOSE:
            self._write(out)
            out.clear()
            self.close()
        elif answer is not NO_RESPONSE:
            raise TypeError(f"a handler answered with {type(answer).__name__}")
        return 0

    def resume_writing(self) -> None:
        self._state &= ~PAUSED
        if self._state & SENDING and self._sender is not None:
            self._sender.pump()
        else:
            self._processor.wake(self)

    def on_sent(self) -> None:
        """The sender has nothing left."""
        if self.timings:
            on_sent(self)
        self._state &= ~SENDING
        if self._state & CLOSING and not self._waiting:
            self._transport.close()
        elif self._paused or self._waiting is not None or self._state & DRAINING:
            self._processor.wake(self)  # there is something to do

    # The end --------------------------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether the client would lose something by a close now: an answer on its way, or one to what is done or being done. What merely
        waits for an event (a long poll, a join) loses nothing; Apache Kafka does not wait for those either."""
        if self._state & (QUEUED | SENDING):
            return True
        return any(
            not isinstance(each, Pending) or each.completed or each.appended or each.occupies_slot or each.is_worked_on_in_turns
            for each in self._waiting or ()
        )

    def offend(self, reason: str) -> None:
        """One line in the log about what this client sent; a host that keeps sending it is only counted."""
        self._processor.report(self.client, reason)

    def throttle(self, quota: QuotaType, amount: int) -> int:
        """Counts `amount` against a quota of the client; returns the throttle time for the answer, ms."""
        return self._processor.throttle.record(self.client, quota, amount)

    def drain(self) -> None:
        """Handle nothing more, and close when no longer `busy`. A request that waits for a slot is dropped."""
        self._withdraw()
        self._state |= DRAINING
        self._pause()
        self.end_drained()

    def end_drained(self) -> None:
        """Close if nothing is owed any more, and all of it has arrived at the client's host.

        When a socket is closed with bytes unread, as a client's next requests are, the kernel drops what it has not delivered.
        """
        if not self.busy:
            self.send_unsent()
            if not self.undelivered:
                self.close()

    def _withdraw(self) -> None:
        if self._request is not None:
            self._processor.channel.withdraw(self._request)
            self._request = None
        self._state &= ~QUEUED

    def close(self) -> None:
        """Close once what is written has left; nothing more is read or handled."""
        self.send_unsent()
        self._state |= CLOSING
        self._pause()
        if not self._state & SENDING:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state |= CLOSING | CLOSED
        self.forget()
        self._withdraw()
        waiting = self._waiting
        self._waiting = None
        self._processor.on_connection_lost(self)
        for pending in waiting or ():
            if isinstance(pending, Pending) and not pending.completed:
                pending.connection = None
                if pending.on_closed is not None:
                    try:
                        pending.on_closed()
                    except Exception:
                        logger.exception("%s: cancelling a request of a closed connection failed", self.client.connection_id)
        self.client.is_lost = True
        on_lost, self.client.on_lost = self.client.on_lost, None
        if on_lost is not None:
            on_lost()


if not TYPE_CHECKING and (_native := compiled("broker.network.native")) is not None:
    from broker.network.processor import Processor

    _native.stand_before(Connection, Processor, RequestChannel, FileSender, TURN_BYTES, SENDING, CLOSED)
    Connection.get_buffer = _native.get_buffer
    Connection.buffer_updated = _native.buffer_updated
    Connection.send_unsent = _native.send_unsent
