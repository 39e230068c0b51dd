"""Defines the exchange between processors and request handlers, and queues requests that wait for a handler slot.

A `RequestHandler` answers `handle(frame, connection)`. `frame` is one request without its 4-byte length, as a writable memoryview of a
receive buffer. It is valid only until the handler returns; a handler that continues later copies it first. The answer is one of

* `bytes`, or a list of parts (bytes, memoryview, FileRegion, ConvertedRegion): the whole response without its 4-byte length;
* a `Pending`: a later event completes it (acks=all, long poll, join group, admin work);
* `NO_RESPONSE`: Produce with acks=0;
* `CLOSE`: the connection is closed after the earlier answers are sent (unsupported version, malformed request, failed acks=0);
* a `LastAnswer`: a response, after which the connection is closed (failed authentication).

Only requests that must wait are queued. While the queue is empty and a handler slot is free (`RequestChannel.inline`), a handler runs in
the callback that read the bytes. Work over several loop turns, a `Pending` with `occupies_slot`, holds a slot (`num.io.threads`). A request
that only waits for an event (purgatory) holds none, as in Apache Kafka. When all slots are taken, requests are queued, one per connection,
and served in the order of arrival. A connection whose request is queued is not read. Requests that the handler calls urgent are never
queued. Nothing here is thread safe: the loop owns it.

In a turn of the loop the requests of all connections are handled for `TURN_NS`. A connection that is read later has its requests handled in
the next turns. Connections that wait keep their order, whichever processor has them, and come before those that are read (`woken`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, final

from ottla.broker.network.frame_memory import HUGE_BYTES, FrameMemory
from ottla.broker.network.limits import LARGE_READS, TURN_NS, UNHANDLED_DIVISOR, UNREAD_DIVISOR
from ottla.broker.network.unread_answers import UnreadAnswers
from ottla.storage.segment.converted_region import ConvertedRegion
from ottla.storage.segment.file_region import FileRegion

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.network.timings import Timing


class Control(Enum):
    """Answers that are not a response."""

    NO_RESPONSE = "no response"
    CLOSE = "close"


NO_RESPONSE: Final = Control.NO_RESPONSE
CLOSE: Final = Control.CLOSE


@final
class LastAnswer:
    """A response after which the connection is closed."""

    __slots__ = ("answer",)

    def __init__(self, answer: bytes) -> None:
        self.answer = answer


Part: TypeAlias = bytes | bytearray | memoryview | FileRegion | ConvertedRegion
Parts: TypeAlias = list[Part]
Completion: TypeAlias = bytes | Parts | LastAnswer | Literal[Control.NO_RESPONSE, Control.CLOSE]


class Waiter(Protocol):
    """A connection that waits for a Pending."""

    def on_answer_ready(self) -> None:
        """Called when it was completed."""

    def hold_slot(self, pending: Pending) -> None:
        """Called when the handler begins to wait for the metadata store or a thread."""

    def begin_work(self) -> None:
        """Called before the request is worked on in a turn of the loop."""

    def end_work(self) -> None:
        """Called after that."""

    def add_work(self, work_ns: int) -> None:
        """Called after the handler waited for the metadata store or a thread."""


@final
class Pending:
    """An answer that a later event completes, exactly once.

    `in_turns`: the handler is still working, a little in each turn of the loop, and needs no slot. `waiting_bytes`: the size of a request
    whose turn has not come yet; the channel counts it among the waiting ones.

    `appended`: a Produce that is in the log and only waits for replicas, so that the next Produce of its connection may be handled before
    this one is answered. `occupies_slot`: the handler is still working (a coroutine). `on_closed` is called if the connection is closed
    first. Completing it is still allowed then, and sends nothing.
    """

    __slots__ = ("_keeper", "_kept_bytes", "answer", "appended", "channel", "completed", "connection", "in_turns", "occupies_slot",
                 "on_closed", "timing", "waiting_bytes")  # fmt: skip

    def __init__(
        self,
        *,
        appended: bool = False,
        in_turns: bool = False,
        occupies_slot: bool = False,
        on_closed: Callable[[], None] | None = None,
        waiting_bytes: int = 0,
    ) -> None:
        self.appended = appended
        self.in_turns = in_turns
        self.waiting_bytes = waiting_bytes
        self.occupies_slot = occupies_slot
        self.on_closed = on_closed
        self.completed = False
        self.answer: Completion = NO_RESPONSE
        # Set by the connection that waits for it. Cleared when it is answered or the connection is closed, so that no cycle is left.
        self.connection: Waiter | None = None
        self.channel: RequestChannel | None = None
        self._keeper: RequestChannel | None = None
        self._kept_bytes = 0
        self.timing: Timing | None = None  # set when the request is measured

    def take_slot(self) -> None:
        """Hold a slot until the answer is complete, because the handler waits for the metadata store or a thread."""
        if not self.occupies_slot:
            self.occupies_slot = True
            if self.connection is not None:
                self.connection.hold_slot(self)

    def leave_slot(self) -> None:
        """Release the slot, because the handler is done and only waits."""
        self.occupies_slot = False
        channel = self.channel
        if channel is not None:
            self.channel = None
            channel.release_slot()

    @property
    def is_worked_on_in_turns(self) -> bool:
        """Whether the request is in progress, in turns."""
        return self.in_turns and not self.waiting_bytes

    @property
    def is_owed(self) -> bool:
        """Whether the request is done, or in progress, and does not only wait for an event."""
        return self.completed or self.appended or self.occupies_slot or self.is_worked_on_in_turns

    def abandon(self) -> None:
        """Stop waiting for the answer, because the connection is closed. Passes on the errors of `on_closed`."""
        self.connection = None
        on_closed, self.on_closed = self.on_closed, None  # it refers to the pending
        if on_closed is not None:
            on_closed()

    def end_waiting(self) -> None:
        """Stop waiting for a turn: it has come, or the client has left."""
        size, self.waiting_bytes = self.waiting_bytes, 0
        channel = self.channel
        if size and channel is not None:
            self.channel = None
            channel.end_waiting(size)

    def keep(self, size: int) -> None:
        """Count that many bytes of the request, which the handler keeps until it calls `end_keeping` or has answered."""
        self._kept_bytes += size
        if self._keeper is not None:
            self._keeper.keep(size)

    def keep_in(self, channel: RequestChannel) -> None:
        """Have the channel count what the handler keeps."""
        self._keeper = channel
        if self._kept_bytes:
            channel.keep(self._kept_bytes)

    def end_keeping(self) -> None:
        """The handler keeps nothing of the request any more."""
        size, self._kept_bytes = self._kept_bytes, 0
        if size and self._keeper is not None:
            self._keeper.end_keeping(size)

    def complete(self, answer: Completion) -> None:
        """Answer the request. The answer is sent after those to earlier requests of the connection. Later calls are ignored."""
        if self.completed:
            return
        self.completed = True
        self.end_keeping()
        self.answer = answer
        self.on_closed = None
        if self.timing is not None:
            self.timing.on_completed()
        channel = self.channel
        if channel is not None:
            self.channel = None
            channel.release_slot()
        connection = self.connection
        if connection is not None:
            self.connection = None
            connection.on_answer_ready()


Answer: TypeAlias = Completion | Pending


def memory_of(answer: Answer | Part) -> int:
    """Bytes of memory that an answer, or a part of one, takes until it is sent."""
    if isinstance(answer, Pending):
        return memory_of(answer.answer) if answer.completed else 0
    if isinstance(answer, list):
        size = 0
        for part in answer:
            size += memory_of(part)
        return size
    if isinstance(answer, LastAnswer):
        return len(answer.answer)
    if isinstance(answer, ConvertedRegion):
        return answer.begun_bytes
    if isinstance(answer, FileRegion):
        return 0  # the kernel sends it
    return 0 if isinstance(answer, Control) else len(answer)


@final
class Request:
    """A request that waits for a handler slot. `frame` is a copy that the connection keeps."""

    __slots__ = ("connection", "frame", "size")

    def __init__(self, connection: Connection, frame: memoryview) -> None:
        self.connection = connection
        self.frame = frame
        self.size = len(frame)


@final
class RequestChannel:
    """The handler slots and the requests that wait for one.

    `max_requests` and `max_request_bytes` (-1: no limit) decide when the channel is `full`. Then connections are read only in small windows
    and paused at their first request, which limits the memory of an overloaded broker. `inline` and `full` are plain attributes for the hot
    path.
    """

    __slots__ = (
        "_call_soon",
        "_clock_ns",
        "_endings",
        "_queue",
        "_turn_armed",
        "frame_memory",
        "full",
        "inline",
        "is_spent",
        "max_request_bytes",
        "max_requests",
        "most_unhandled_bytes",
        "queued_bytes",
        "slots",
        "slots_in_use",
        "turn_ends_ns",
        "unhandled_bytes",
        "unread",
        "waiting_for_turn",
        "woken",
    )

    def __init__(
        self,
        slots: int,
        max_requests: int,
        max_request_bytes: int,
        call_soon: Callable[[Callable[[], None]], object],
        large_max_bytes: int = 256 * 1024 * 1024,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`large_max_bytes` limits the memory of very large requests if `max_request_bytes` does not."""
        self.slots = slots
        self.max_requests = max_requests
        self.max_request_bytes = max_request_bytes
        self.frame_memory = FrameMemory(max_request_bytes) if max_request_bytes > 0 else FrameMemory(large_max_bytes, HUGE_BYTES)
        memory_bytes = max_request_bytes if max_request_bytes > 0 else large_max_bytes
        self.unread = UnreadAnswers(memory_bytes // UNREAD_DIVISOR, clock_ns)
        self.unhandled_bytes = 0
        """Bytes of small frames that connections keep, because the frames are unfinished or have to wait."""
        self.most_unhandled_bytes = memory_bytes // UNHANDLED_DIVISOR
        """Bytes beyond which connections are read in small windows, and unfinished frames need room."""
        self.slots_in_use = 0
        self.waiting_for_turn = 0
        self.queued_bytes = 0
        self.inline = True
        self.full = False
        self.turn_ends_ns = 0
        """Time up to which requests may be handled in this turn of the loop; 0 before the first of them."""
        self.is_spent = False
        """Whether the time of this turn is used up."""
        self._queue: deque[Request] = deque()
        self._call_soon = call_soon
        self._clock_ns = clock_ns
        self._turn_armed = False
        self._endings: list[Callable[[], None]] = []
        self.woken: list[Connection] = []
        """The connections that send completed answers and handle frames when the next turn begins."""

    @property
    def queue_size(self) -> int:
        """Requests that wait for a slot, or for their turn (RequestQueueSize)."""
        return len(self._queue) + self.waiting_for_turn

    @property
    def idle_slots(self) -> int:
        """Free handler slots."""
        return max(0, self.slots - self.slots_in_use)

    def resize(self, slots: int) -> None:
        """Apply a changed num.io.threads. If it is smaller, handlers beyond it finish first."""
        self.slots = slots
        self._update()

    def begin_turn(self, now_ns: int) -> bool:
        """Whether a request may be handled after `turn_ends_ns`, because it is the first one of this turn of the loop.

        Its time begins then. Connections that are read later leave their requests for the next turn.
        """
        if self.turn_ends_ns:
            self.is_spent = True
            return False
        self.turn_ends_ns = now_ns + TURN_NS
        self._arm_turn()
        return True

    def turn_is_over(self) -> bool:
        """Whether the time of this turn of the loop is used up."""
        now_ns: int = self._clock_ns()
        return now_ns > self.turn_ends_ns and not self.begin_turn(now_ns)

    def at_turn_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, after the connections that were read in this turn of the loop are handled. It must not raise."""
        self._endings.append(callback)
        self._arm_turn()

    def wake(self, connection: Connection) -> None:
        """Have the connection send completed answers and handle waiting frames, once, in the next loop turn with time for it."""
        self.woken.append(connection)
        self._arm_turn()

    def _arm_turn(self) -> None:
        if not self._turn_armed:
            self._turn_armed = True
            self._call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_armed = False
        self.turn_ends_ns = 0
        self.is_spent = False
        endings = self._endings
        if endings:
            self._endings = []
            for callback in endings:
                callback()
        if self.woken:
            self._run_woken()
        if self._queue:
            self._run_queued()

    def _run_woken(self) -> None:
        woken = self.woken
        self.woken = []
        # Several answers of one connection are sent together.
        connections = list(dict.fromkeys(woken)) if len(woken) > 1 else woken
        large_reads = 0
        later: list[Connection] = []
        for at, connection in enumerate(connections):
            if self.turn_is_over():
                later.extend(connections[at:])
                break
            if connection.awaits_large_read:
                large_reads += 1
                if large_reads > LARGE_READS:
                    later.append(connection)
                    continue
            connection.run()
        if later:
            self.woken = [*later, *self.woken]
            self._arm_turn()

    def hold_slot(self, pending: Pending) -> None:
        """Take a slot for the handler of `pending`, until it completes."""
        pending.channel = self
        self.slots_in_use += 1
        self._update()

    def release_slot(self) -> None:
        """Release a slot after a handler finished. The longest waiting request may run in the next loop turn."""
        self.slots_in_use -= 1
        self._update()

    def hold_waiting(self, pending: Pending) -> None:
        """Count a large request that waits for its turn elsewhere."""
        pending.channel = self
        self.waiting_for_turn += 1
        self._keep(pending.waiting_bytes)
        self._update()

    def end_waiting(self, size: int) -> None:
        """Uncount a request that waited for its turn."""
        self.waiting_for_turn -= 1
        self._end_keeping(size)
        self._update()

    def keep(self, size: int) -> None:
        """Count what the handler of a request in progress keeps of it."""
        self._keep(size)
        self._update()

    def end_keeping(self, size: int) -> None:
        """Uncount bytes that `keep` has counted."""
        self._end_keeping(size)
        self._update()

    def _keep(self, size: int) -> None:
        """Count the bytes of a request that has arrived and waits."""
        self.queued_bytes += size
        self.frame_memory.keep(size)

    def _end_keeping(self, size: int) -> None:
        self.queued_bytes -= size
        self.frame_memory.end_keeping(size)

    def submit(self, request: Request) -> None:
        """Queue a request. The connection stops reading until the request ran, so at most one per connection is queued."""
        self._queue.append(request)
        self._keep(request.size)
        self._update()

    def withdraw(self, request: Request) -> None:
        """Remove a request whose connection was closed."""
        try:
            self._queue.remove(request)
        except ValueError:
            return
        self._end_keeping(request.size)
        self._update()

    def _update(self) -> None:
        waiting = len(self._queue)
        free = self.slots_in_use < self.slots
        self.inline = free and not waiting
        self.full = waiting + self.waiting_for_turn >= self.max_requests or (0 < self.max_request_bytes <= self.queued_bytes)
        if free and waiting:
            self._arm_turn()

    def _run_queued(self) -> None:
        queue = self._queue
        # Only the requests that wait now: the next request of a connection comes after all others and after other events.
        for number in range(len(queue)):
            if self.slots_in_use >= self.slots or not queue or (number and self.turn_is_over()):
                break
            request = queue.popleft()
            self._end_keeping(request.size)
            request.connection.run_queued()
        self._update()
