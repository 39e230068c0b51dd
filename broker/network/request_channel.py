"""Defines what passes between processors and request handlers, and queues requests that wait for a handler slot.

A `RequestHandler` answers `handle(frame, connection)`. `frame` is one request without its 4-byte length, as a writable memoryview of a
receive buffer: it is valid only until the handler returns; what must wait copies first. The answer is one of

* `bytes`, or a list of parts (bytes, memoryview, FileRegion): the whole response without the 4-byte length, which the network prefixes;
* a `Pending`: a later event completes it (acks=all, long poll, join group, admin work);
* `NO_RESPONSE`: Produce with acks=0;
* `CLOSE`: the connection is closed once the answers before it are out (unsupported version, malformed request, acks=0 that failed).

The queue is where requests wait, not a toll every request pays. While it is empty and a handler slot is free (`RequestChannel.inline`) a
handler runs in the callback that read the bytes. A slot (`num.io.threads`) is held by what executes over several loop turns: a `Pending`
with `occupies_slot`. What merely waits for an event (purgatory) holds none, as in Apache Kafka. With all slots taken, requests queue, one
per connection, first come first served; a connection whose request waits is not read. What the handler calls urgent never queues. Nothing
here is thread safe: the loop owns it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from broker.network.frame_memory import FrameMemory
from storage.segment.file_region import FileRegion

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.network.timings import Timing


class Control(Enum):
    """Answers that are not a response."""

    NO_RESPONSE = "no response"
    CLOSE = "close"


NO_RESPONSE: Final = Control.NO_RESPONSE
CLOSE: Final = Control.CLOSE

Part: TypeAlias = bytes | bytearray | memoryview | FileRegion
Parts: TypeAlias = list[Part]
Completion: TypeAlias = bytes | Parts | Literal[Control.NO_RESPONSE, Control.CLOSE]


class Waiter(Protocol):
    """Who waits for a Pending."""

    def on_answer_ready(self) -> None:
        """It was completed."""


class Pending:
    """An answer that a later event completes, exactly once.

    `in_turns`: the handler still executes, a little in each turn of the loop; it needs no slot. `waiting_bytes`: the size of a request
    whose turn has not come yet; the channel counts it among those that wait.

    `appended`: a Produce that is in the log and only waits for replicas, so the next Produce of its connection may be handled before this
    one is answered. `occupies_slot`: the handler still executes (a coroutine). `on_closed` is called when the connection goes away first;
    completing it then is still allowed and sends nothing.
    """

    __slots__ = ("answer", "appended", "channel", "completed", "connection", "in_turns", "occupies_slot", "on_closed", "timing",
                 "waiting_bytes")  # fmt: skip

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
        # Set by the connection that waits for it, cleared when it is answered or gone, so that no cycle is left.
        self.connection: Waiter | None = None
        self.channel: RequestChannel | None = None
        self.timing: Timing | None = None  # set when the request is measured

    def leave_slot(self) -> None:
        """The handler executes no more, it merely waits: others may have its slot."""
        self.occupies_slot = False
        channel = self.channel
        if channel is not None:
            self.channel = None
            channel.release_slot()

    @property
    def is_worked_on_in_turns(self) -> bool:
        """Whether it has begun, and goes on in turns."""
        return self.in_turns and not self.waiting_bytes

    def end_waiting(self) -> None:
        """The turn of the request has come, or will not come because its client left."""
        size, self.waiting_bytes = self.waiting_bytes, 0
        channel = self.channel
        if size and channel is not None:
            self.channel = None
            channel.end_waiting(size)

    def complete(self, answer: Completion) -> None:
        """Answer the request; it leaves when all requests before it on the connection are answered. Later calls are ignored."""
        if self.completed:
            return
        self.completed = True
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


class Request:
    """One request that waits for a handler slot. `frame` is a copy that the connection keeps."""

    __slots__ = ("connection", "frame", "size")

    def __init__(self, connection: Connection, frame: memoryview) -> None:
        self.connection = connection
        self.frame = frame
        self.size = len(frame)


class RequestChannel:
    """The handler slots and the requests that wait for one.

    `max_requests` and `max_request_bytes` (-1: no limit) say when the channel is `full`: connections are then read only in small windows
    and paused at their first request, so what a broker that cannot keep up holds is bounded. `inline` and `full` are plain attributes
    because the hot path reads them.
    """

    __slots__ = (
        "_armed",
        "_call_soon",
        "_queue",
        "frame_memory",
        "full",
        "inline",
        "max_request_bytes",
        "max_requests",
        "queued_bytes",
        "slots",
        "slots_in_use",
        "waiting_for_turn",
    )

    def __init__(
        self,
        slots: int,
        max_requests: int,
        max_request_bytes: int,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self.slots = slots
        self.max_requests = max_requests
        self.max_request_bytes = max_request_bytes
        self.frame_memory = FrameMemory(max_request_bytes)
        self.slots_in_use = 0
        self.waiting_for_turn = 0
        self.queued_bytes = 0
        self.inline = True
        self.full = False
        self._queue: deque[Request] = deque()
        self._call_soon = call_soon
        self._armed = False

    @property
    def queue_size(self) -> int:
        """Requests that wait for a slot, or for their turn (RequestQueueSize)."""
        return len(self._queue) + self.waiting_for_turn

    @property
    def idle_slots(self) -> int:
        """Handler slots that nothing executes in."""
        return max(0, self.slots - self.slots_in_use)

    def resize(self, slots: int) -> None:
        """num.io.threads changed. Handlers beyond a smaller number finish first."""
        self.slots = slots
        self._update()

    def hold_slot(self, pending: Pending) -> None:
        """The handler behind `pending` executes until it completes."""
        pending.channel = self
        self.slots_in_use += 1
        self._update()

    def release_slot(self) -> None:
        """A handler finished; whoever waits longest may run in the next loop turn."""
        self.slots_in_use -= 1
        self._update()

    def hold_waiting(self, pending: Pending) -> None:
        """A large request waits for its turn, elsewhere, but it counts here."""
        pending.channel = self
        self.waiting_for_turn += 1
        self.queued_bytes += pending.waiting_bytes
        self._update()

    def end_waiting(self, size: int) -> None:
        """It waits no longer."""
        self.waiting_for_turn -= 1
        self.queued_bytes -= size
        self._update()

    def submit(self, request: Request) -> None:
        """Wait for a slot. The connection stops reading until its request ran, so this holds at most one request per connection."""
        self._queue.append(request)
        self.queued_bytes += request.size
        self._update()

    def withdraw(self, request: Request) -> None:
        """The connection of a waiting request is gone."""
        try:
            self._queue.remove(request)
        except ValueError:
            return
        self.queued_bytes -= request.size
        self._update()

    def _update(self) -> None:
        waiting = len(self._queue)
        free = self.slots_in_use < self.slots
        self.inline = free and not waiting
        self.full = waiting + self.waiting_for_turn >= self.max_requests or (0 < self.max_request_bytes <= self.queued_bytes)
        if free and waiting and not self._armed:
            self._armed = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._armed = False
        queue = self._queue
        # Only those that wait now: a connection that queues its next request meanwhile comes after everybody else's and after other events.
        for _ in range(len(queue)):
            if self.slots_in_use >= self.slots or not queue:
                break
            request = queue.popleft()
            self.queued_bytes -= request.size
            request.connection.run_queued()
        self._update()
