"""Serves one client connection: receives bytes, passes frames to the handler, sends answers in the order of the requests.

A `Processor` owns it. A `FrameReader` receives the bytes. A complete frame is handled in the shared receive buffer, without a copy, in the
callback that read it. Frames that must wait are copied, and the connection is not read meanwhile. An `AnswerWriter` writes.

A connection has a `handler`, which authentication replaces, a `client`, an `access` with the client's permissions, and a throttle. It knows
frames, but not the kinds of requests: the handler decides about everything that depends on the kind.

Invariants:

* Answers leave in the order of the requests. `_waiting` holds the answers from the oldest `Pending` on.
* No frame is handled while `_state` has a bit other than APPENDED. With APPENDED only frames that `may_follow_appends` are handled.
* A connection that may not handle its frames is not read (`_paused`), so it keeps the bytes of at most one read.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from struct import Struct
from typing import Final

from ottla.broker.network.answer_writer import AnswerWriter
from ottla.broker.network.frame_reader import FrameReader
from ottla.broker.network.handler import RequestHandler
from ottla.broker.network.limits import ANSWER_WEIGHT, MAX_APPENDED, TURN_BYTES
from ottla.broker.network.processor import Processor
from ottla.broker.network.request_channel import CLOSE, NO_RESPONSE, Answer, Completion, LastAnswer, Parts, Pending, Request
from ottla.broker.network.timings import Timing, add_timing
from ottla.broker.quotas.quota_type import CONTROLLER_MUTATION
from ottla.broker.quotas.throttle import Throttle
from ottla.broker.quotas.token_bucket import MutationQuota
from ottla.broker.security.access import Access
from ottla.broker.security.client import Client
from ottla.pauses import begin_slice
from ottla.protocol.cursors import fields

logger = logging.getLogger(__name__)

_prefix: Final = Struct(">i").pack
_SHORT: Final = 256
_SHORT_PREFIXES: Final = [_prefix(length) for length in range(_SHORT)]
"""The length prefixes of most answers. A look-up costs a tenth of packing one."""
INFINITE: Final = float("inf")

# The reasons for which a connection handles no frame now: bits of its state, 0 for none. APPENDED alone lets some frames through.
APPENDED: Final = 1  # only appended requests wait for their answer: the handler decides whether the next request may be handled
WAITING: Final = 2  # the last request has no answer yet
QUEUED: Final = 4  # the next request waits for a handler slot
PAUSED: Final = 8  # the client does not read its answers
SENDING: Final = 16  # a file is being sent
LOST: Final = 32  # its transport is closed, and what it holds is released when a turn of the loop has time for it
CLOSING: Final = 64  # closed after queued bytes are sent
DRAINING: Final = 128  # closed after every due answer is sent
YIELDED: Final = 256  # other connections have their turn; continues in the next turn of the loop
CLOSED: Final = 512
STARVED: Final = 1024  # there is no memory for the incoming request
MUTED: Final = 2048  # the client has exceeded a quota, and waits for its throttle time (KIP-219)


class Connection:
    """One connection. `received_ns` is the time of the last read, `last_active_ns` the time of the last transfer (monotonic)."""

    __slots__ = (
        "_muted",
        "_paused",
        "_processor",
        "_reader",
        "_request",
        "_state",
        "_throttle",
        "_waiting",
        "_writer",
        "access",
        "client",
        "handler",
        "last_active_ns",
        "max_request_bytes",
        "received_ns",
    )

    def __init__(self, processor: Processor, client: Client, sock: socket.socket | None) -> None:
        """`sock` is the transport's socket when file regions may be sent beside the transport; None with TLS."""
        self.client = client
        self.access = Access(processor.authorizer, client)
        self._throttle = Throttle(processor.quotas, client)
        self.handler: RequestHandler = processor.handler
        self.max_request_bytes = processor.request_max_bytes
        self.received_ns: int = processor.clock_ns()
        self.last_active_ns = self.received_ns
        self._processor = processor
        self._reader = FrameReader(self, processor)
        self._writer = AnswerWriter(self, processor.loop, sock)
        self._state = 0
        self._paused = False
        self._request: Request | None = None  # in the request channel while QUEUED
        self._waiting: deque[Answer] | None = None
        self._muted: asyncio.TimerHandle | None = None  # while MUTED

    # Frames in -----------------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._writer.begin(transport)
        self._processor.on_connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        processor = self._processor
        now_ns: int = processor.clock_ns()
        self.received_ns = self.last_active_ns = now_ns
        channel = processor.channel
        reader = self._reader
        if now_ns > channel.turn_ends_ns and not channel.begin_turn(now_ns):
            self._leave_for_next_turn(nbytes)
        elif reader.receive(nbytes):
            self._throttle.since_ns = now_ns
            self._process(False)
            reader.on_handled()

    def _leave_for_next_turn(self, nbytes: int) -> None:
        """Keep what was received, because the time of this turn of the loop is used up."""
        reader = self._reader
        if reader.receive(nbytes):
            if reader.is_counted:  # unfinished until now, with a length that was checked; it keeps its room
                self._keep_or_wait(reader.start)
            else:
                reader.keep_all(reader.start)
            reader.on_handled()
        self._state |= YIELDED
        self._pause()
        self._processor.channel.wake(self)

    def exchange_handler(self, handler: RequestHandler, max_request_bytes: int | None = None) -> None:
        """Have further frames handled by `handler`. Frames are at most `max_request_bytes` long; None: as long as those of any client."""
        self.handler = handler
        self.max_request_bytes = self._processor.request_max_bytes if max_request_bytes is None else max_request_bytes

    def grow_with_frames(self, sock: socket.socket) -> None:
        """Let the kernel's receive buffer of the socket grow with the size of frames."""
        self._reader.growing = sock

    def touch(self) -> None:
        """Record a transfer, so that the connection is not idle."""
        self.last_active_ns = self._processor.clock_ns()

    def _process(self, admitted: bool) -> None:
        """Handle frames until one is incomplete or must wait, and keep the rest. The answers are written once, soon.

        With `admitted` the first frame has a handler slot.
        """
        reader = self._reader
        if self._writer.unsent is not None:
            self.send_unsent()
        begin_slice()
        try:
            position = self._handle_frames(reader, admitted)
        except Exception:
            self._fail()
            return
        self._throttle.since_ns = 0
        if position != reader.end and not self._state & CLOSED:
            self._keep_or_wait(position)

    def _handle_frames(self, reader: FrameReader, admitted: bool) -> int:
        """Handle frames as `_process` does. Returns the position of the first unhandled byte."""
        view = reader.view
        position = reader.start
        end = reader.end
        processor = self._processor
        channel = processor.channel
        out: Parts = []
        gathered = 0
        while end - position >= 4:
            state = self._state
            if state > APPENDED:
                break
            size = fields.int32(reader.data, position)
            begin = position + 4
            after = begin + size
            if (size <= 0 and (size < 0 or not self.handler.takes_empty())) or size > self.max_request_bytes:
                self._write(out)
                self._refuse(size, view[position : min(end, position + 16)])
                return end
            if after > end or (state and not self._may_follow_appends(view, begin, after)):
                break
            if not (channel.inline or admitted or self.handler.is_urgent(view, begin, after, self)):
                self._state = state | QUEUED
                break
            admitted = False
            answer = self.handler.handle(view[begin:after], self)
            position = after
            if type(answer) is bytes and self._waiting is None:
                size = len(answer)
                out.append(_SHORT_PREFIXES[size] if size < _SHORT else _prefix(size))
                out.append(answer)
                gathered += size + ANSWER_WEIGHT
            else:
                gathered += self._on_answer(answer, out) + ANSWER_WEIGHT
            if gathered >= TURN_BYTES or (position != end and channel.turn_is_over()):
                if position != end:
                    self._state |= YIELDED
                    channel.wake(self)
                self._write(out)
                return position
        if out:
            self._writer.unsent = out
            processor.send_soon(self)
        return position

    def _may_follow_appends(self, view: memoryview, begin: int, after: int) -> bool:
        """Whether the frame may be handled while appended requests wait for their replicas."""
        waiting = self._waiting
        return waiting is not None and len(waiting) < MAX_APPENDED and self.handler.may_follow_appends(view, begin, after)

    def _keep_or_wait(self, position: int) -> None:
        """Keep the unhandled bytes. Read on if they are the head of a frame, else pause until the frame may be handled."""
        reader = self._reader
        if self._state <= APPENDED and not reader.holds_frame(position) and not self._is_large_behind_appends(position):
            reader.keep_head(position)
            return
        reader.keep_all(position)
        self._pause()
        if self._state & QUEUED and self._request is None:
            self._request = Request(self, reader.first_kept_frame())
            self._processor.channel.submit(self._request)
            reader.give_back()  # after it counts there, so that no other takes the room

    def _is_large_behind_appends(self, position: int) -> bool:
        """Whether a large frame begins that has to wait for appended requests. Complete, it would take memory until replicas have those,
        which may be as long as its client wishes. So no more of it is received before."""
        reader = self._reader
        is_large = bool(self._state) and reader.begins_large_frame(position)
        return is_large and not self._may_follow_appends(reader.view, position + 4, reader.end)

    def is_urgent(self, view: memoryview, begin: int, end: int) -> bool:
        """See `RequestHandler`."""
        return self.handler.is_urgent(view, begin, end, self)

    def on_kept(self) -> None:
        """See `RequestHandler`."""
        self.handler.on_kept(self)

    def on_starved(self) -> None:
        """Stop reading a large frame, for which there is no memory."""
        self._state |= STARVED
        self._pause()

    def on_room(self) -> None:
        """Continue reading a large frame, for which there is memory now."""
        self._reader.on_room()
        self._reader.expect()
        self._state &= ~STARVED
        self._processor.channel.wake(self)

    def _pause(self) -> None:
        if not self._paused and not self._writer.transport.is_closing():
            self._paused = True
            self._writer.transport.pause_reading()

    def _refuse(self, size: int, head: memoryview) -> None:
        """Close the connection because of an impossible length, with a line in the log, as Apache Kafka does."""
        self._processor.on_bad_length(self.client, size, self.max_request_bytes, bytes(head))
        self.handler.on_bad_length(self)
        self.abort()

    # Answers out ----------------------------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: Answer, out: Parts) -> int:
        """Put any answer into `out`, or send it, or wait for it. Returns the size of what was put or sent."""
        if isinstance(answer, Pending):
            if not answer.completed:
                self._wait_for(answer)
                return 0
            answer = answer.answer
        if self._waiting is None:
            return self._append_answer(answer, out)
        if answer is not NO_RESPONSE:
            self._waiting.append(answer)
            if answer is CLOSE or isinstance(answer, LastAnswer):
                self._state |= CLOSING
        return 0

    def _wait_for(self, pending: Pending) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(pending)
        processor = self._processor
        if processor.quotas.counts_time:
            self._throttle.interrupt(processor.clock_ns())
        pending.connection = self
        pending.keep_in(processor.channel)
        if pending.occupies_slot:
            self._processor.channel.hold_slot(pending)
        elif pending.waiting_bytes:
            self._processor.channel.hold_waiting(pending)
        self._state |= APPENDED if pending.appended else WAITING

    def hold_slot(self, pending: Pending) -> None:
        """See Waiter."""
        self._processor.channel.hold_slot(pending)

    def on_answer_ready(self) -> None:
        """Note that a Pending was completed. The answer leaves in the next turn of the loop, so that completing never runs a handler."""
        self._processor.channel.wake(self)

    def run_queued(self) -> None:
        """Handle the queued request, which has a slot now."""
        self._request = None
        self._state &= ~QUEUED
        if self._state > APPENDED:
            self._reader.count_kept()
        else:
            self._resume(True)

    def run(self) -> None:
        """Send completed answers, and handle the frames that waited for them. Called by the channel after `wake`."""
        if self._state & LOST:
            self._let_go()
            return
        self._state &= ~YIELDED
        if self._waiting is not None:
            try:
                self._send_waiting(self._waiting)
            except Exception:
                self._fail()
                return
        if self._state & DRAINING:
            self.end_drained()
        self._resume(False)

    def _send_waiting(self, waiting: deque[Answer]) -> None:
        """Send the completed answers at the front of the queue."""
        self.send_unsent()
        self.touch()
        out: Parts = []
        while waiting:
            head = waiting[0]
            if isinstance(head, Pending):
                if not head.completed:
                    break
                if head.timing is not None:
                    self.add_timing(head.timing)
                head = head.answer
            waiting.popleft()
            self._append_answer(head, out)
        if not waiting:
            self._waiting = None
            self._state &= ~(APPENDED | WAITING)
        self._write(out)

    def _resume(self, admitted: bool) -> None:
        """Handle frames that waited, and read on unless a frame must wait again."""
        if not self._paused or self._state > APPENDED:
            return
        reader = self._reader
        if reader.take_kept():
            self.begin_work()
            self._process(admitted)
            reader.on_handled()
        # While the last request waits and no bytes are kept, reading on shows whether the client has left.
        state = self._state
        waits = reader.is_held_back if state <= APPENDED else state & ~(APPENDED | WAITING) or reader.kept_bytes
        if not waits and not self._writer.transport.is_closing():
            self._paused = False
            self._writer.transport.resume_reading()

    def _append_answer(self, answer: Completion, out: Parts) -> int:
        """Append an answer to `out`, or send both. Returns the size of the answer."""
        if isinstance(answer, bytes):
            out.append(_prefix(len(answer)))
            out.append(answer)
            return len(answer)
        if isinstance(answer, list):
            size = self._writer.append(answer, out)
            if size >= TURN_BYTES:
                self._write(out)
                out.clear()
            return size
        if isinstance(answer, LastAnswer):
            out.append(_prefix(len(answer.answer)))
            out.append(answer.answer)
        if answer is CLOSE or isinstance(answer, LastAnswer):
            self._write(out)
            out.clear()
            self.close()
        elif answer is not NO_RESPONSE:
            raise TypeError(f"a handler answered with {type(answer).__name__}")
        return 0

    def _write(self, out: Parts) -> None:
        """Write the parts at once. `unsent` must be empty."""
        if not self._state & CLOSED:
            self._writer.write(out)
            if self._writer.is_sending:
                self._hold_back(SENDING)
            elif self._state & PAUSED:
                self.count_unread()

    def send_unsent(self) -> None:
        """Write the waiting answers. An error closes only this connection, because the processor has answers of others to send."""
        out = self._writer.unsent
        if out is not None and not self._state & CLOSED:
            self._writer.unsent = None
            try:
                self._write(out)
            except Exception:
                self._fail()

    def add_timing(self, timing: Timing) -> None:
        """Add a measured request, whose answer is in the next write."""
        add_timing(self._writer, timing)

    def pause_writing(self) -> None:
        self._hold_back(PAUSED)

    def _hold_back(self, reason: int) -> None:
        """Handle no frames. Nor is more of a large one received: complete, it would count nowhere until the client has read its answers."""
        self._state |= reason
        self.count_unread()
        if self._reader.is_filling():
            self._pause()

    def resume_writing(self) -> None:
        self._state &= ~PAUSED
        if not self._writer.pump():
            self.count_unread()
            self._processor.channel.wake(self)

    def count_unread(self) -> None:
        """Count the answers that are held because the client does not read them."""
        is_held = bool(self._state & (PAUSED | SENDING)) and not self._state & CLOSED
        self._processor.channel.unread.count(self, self._writer.memory_bytes(self._waiting) if is_held else 0)

    @property
    def delivered(self) -> int | None:
        """A number that changes when the client's host receives more of the answers; None while these do not wait for it."""
        return self._writer.delivered

    def on_sent(self) -> None:
        """Continue after the sender has sent all file regions."""
        self._writer.on_sent()
        self._state &= ~SENDING
        self.count_unread()
        if self._state & CLOSING and not self._closes_behind_waiting():
            self._writer.transport.close()
        elif self._paused or self._waiting is not None or self._state & DRAINING:
            self._processor.channel.wake(self)  # there may be frames to handle or answers to send

    def _closes_behind_waiting(self) -> bool:
        """Whether the connection closes because of a waiting answer, and so only behind the answers before it."""
        if not self._waiting:
            return False
        last = self._waiting[len(self._waiting) - 1]  # compiled code has no negative indexes
        return last is CLOSE or isinstance(last, LastAnswer)

    # The throttle ---------------------------------------------------------------------------------------------------------------------

    def throttle(self, quota: int, amount: int) -> int:
        """Count `amount` towards a quota of the client (see `QuotaType`), and the time of its request towards its request quota.

        Returns the longer throttle time for the answer in ms; reading pauses that long. Called once for each request.
        """
        processor = self._processor
        if not processor.quotas.is_limited:
            return 0
        time_ms = self._throttle.charge(quota, amount, processor.clock_ns())
        if time_ms > 0:
            self.mute(time_ms)
            if self._muted is not None:
                self._throttle.begin_delay()
        return time_ms

    def count_more(self, quota: int, amount: int) -> None:
        """Count a further amount of the request for which `throttle` was called."""
        processor = self._processor
        if processor.quotas.is_limited:
            self._throttle.charge_more(quota, amount, processor.clock_ns())

    def exempt(self) -> None:
        """Have the request that is handled not count towards the client's request quota."""
        processor = self._processor
        if processor.quotas.is_limited:
            self._throttle.exempt(processor.clock_ns())

    @property
    def most_fetch_bytes(self) -> float:
        """Bytes up to which a fetch certainly gets no throttle time; infinite without a quota."""
        processor = self._processor
        return self._throttle.most_fetch_bytes(processor.clock_ns()) if processor.quotas.is_limited else INFINITE

    @property
    def last_throttle_time_ms(self) -> int:
        """The last result of `throttle`, ms."""
        return self._throttle.last_time_ms if self._processor.quotas.is_limited else 0

    def mutation_quota(self, *, is_strict: bool) -> MutationQuota:
        """The quota for partitions that the request creates and deletes (KIP-599). `throttle_mutations` follows with the answer."""
        processor = self._processor
        bucket = self._throttle.mutations(processor.clock_ns()) if processor.quotas.is_limited else None
        return MutationQuota(bucket, self._now_ms, is_strict=is_strict)

    def _now_ms(self) -> int:
        return self._processor.clock_ns() // 1_000_000

    def throttle_mutations(self, quota: MutationQuota) -> int:
        """Like `throttle`, for the partitions that the request has created and deleted."""
        return self.throttle(CONTROLLER_MUTATION, quota.throttle_time_ms())

    def begin_work(self) -> None:
        """Count the time until `end_work` as work for the client's request."""
        processor = self._processor
        if processor.quotas.counts_time:
            self._throttle.since_ns = processor.clock_ns()

    def end_work(self) -> None:
        """Keep the work since `begin_work` for an answer that comes later."""
        processor = self._processor
        if processor.quotas.counts_time:
            self._throttle.interrupt(processor.clock_ns())
        self._throttle.since_ns = 0

    def add_work(self, work_ns: int) -> None:
        """Add work that a task has done for the request whose answer is awaited."""
        if self._processor.quotas.counts_time:
            self._throttle.add_work(work_ns)

    def mute(self, time_ms: int) -> None:
        """Read and handle nothing for `time_ms`. Answers are sent nevertheless. A longer pause in progress is kept."""
        loop = self._processor.loop
        until = loop.time() + time_ms / 1000
        if self._state & CLOSED:
            return
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self._muted = loop.call_at(until, self._unmute)
        self._state |= MUTED
        self._pause()

    def _unmute(self) -> None:
        self._muted = None
        self._throttle.end_delay()
        self._state &= ~MUTED
        self._reader.expect()
        self.touch()
        self._processor.channel.wake(self)

    @property
    def is_muted(self) -> bool:
        """Whether the client waits for its throttle time, and so is not idle."""
        return self._muted is not None

    @property
    def has_left(self) -> bool:
        """Whether the client has closed its side. A connection that is not read does not notice."""
        return self._writer.has_left

    @property
    def has_left_request(self) -> bool:
        """Whether the client has closed its side while its request waits. Bytes behind the request keep the connection from being read."""
        return bool(self._state & WAITING) and not self._state & (PAUSED | SENDING) and self.has_left

    # Closing --------------------------------------------------------------------------------------------------------------------------

    @property
    def was_made(self) -> bool:
        """Whether the connection was established."""
        return self._writer.was_made

    @property
    def is_closed(self) -> bool:
        """Whether it was closed at once, or is lost."""
        return bool(self._state & CLOSED)

    @property
    def undelivered(self) -> int:
        """Bytes of answers that the client's host has not received yet, here and in the kernel; with TLS only those here."""
        return self._writer.undelivered

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory that hold received bytes of this connection."""
        return self._reader.kept_bytes

    @property
    def awaits_large_read(self) -> bool:
        """Whether it waits for a turn in which more of a large frame is received."""
        return self._reader.is_filling() and not self._state & CLOSED

    def is_late(self, now_ns: int) -> bool:
        """Whether a large request takes too long to arrive, or its client to read the answers before it, and keeps memory from others."""
        state = self._state
        if state & (STARVED | MUTED | CLOSED) or not self._reader.is_late(now_ns):
            return False
        return bool(state & (PAUSED | SENDING)) or not self._reader.keeps_frame()

    def holds_too_long(self, now_ns: int) -> bool:
        """Whether bytes of small requests are kept, and the broker does not end that: a request is unfinished, or waits for an event or the
        client."""
        state = self._state
        if state & (STARVED | MUTED | QUEUED | YIELDED | CLOSED) or not self._reader.holds_too_long(now_ns, self.last_active_ns):
            return False
        if state & WAITING:
            return not self.busy
        return bool(state & (PAUSED | SENDING)) or not self._reader.is_held_back

    @property
    def busy(self) -> bool:
        """Whether the client would lose an answer if the connection were closed now: one being sent, or one to a request that is done or in
        progress. A request that waits for an event (a long poll, a join) does not count; Apache Kafka does not wait for those either."""
        is_owed = any(not isinstance(each, Pending) or each.is_owed for each in self._waiting or ())
        return is_owed or bool(self._state & (QUEUED | SENDING))

    def offend(self, reason: str) -> None:
        """Log one line about bad input of this client. A host that repeats it is only counted."""
        self._processor.report(self.client, reason)

    def drain(self) -> None:
        """Handle no more requests, and close when no longer `busy`. A request that waits for a slot is dropped."""
        self._withdraw()
        self._state |= DRAINING
        self._pause()
        self.end_drained()

    def end_drained(self) -> None:
        """Close if every answer was sent and has arrived at the client's host.

        If a socket is closed with unread bytes, for example further requests, the kernel drops all undelivered bytes.
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

    def eof_received(self) -> None:
        """Answer earlier requests before the transport closes itself, because the client will send nothing more."""
        self.send_unsent()

    def close(self) -> None:
        """Close after the written bytes have left. No more bytes are read or handled."""
        self.send_unsent()
        self._state |= CLOSING
        self._pause()
        if not self._state & SENDING:
            self._writer.transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._state |= CLOSING | CLOSED
        self.count_unread()
        self._writer.transport.abort()

    def _fail(self) -> None:
        """Close this connection, and no other, after a bug of the broker. Called in an except block."""
        logger.exception("%s: unexpected error in a request; closing the connection", self.client.connection_id)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state |= CLOSING | CLOSED | LOST
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
            self._throttle.end_delay()
        self._writer.forget()
        self.count_unread()
        channel = self._processor.channel
        if channel.turn_is_over():
            channel.wake(self)
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Release what the lost connection holds. Memory of 8 MiB takes a millisecond, and many may be lost at once."""
        self._state &= ~LOST
        self._reader.forget()
        self._withdraw()
        waiting = self._waiting
        self._waiting = None
        self._processor.on_connection_lost(self)
        for pending in waiting or ():
            if isinstance(pending, Pending) and not pending.completed:
                try:
                    pending.abandon()
                except Exception:
                    logger.exception("%s: cancelling a request of a closed connection failed", self.client.connection_id)
        self.client.is_lost = True
        on_lost, self.client.on_lost = self.client.on_lost, None
        if on_lost is not None:
            on_lost()
