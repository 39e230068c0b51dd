"""Receives the bytes of one connection, and keeps what is left of a read.

A `Connection` owns one, and handles the frames that it finds. Bytes land in the processor's one shared receive buffer, so an idle
connection holds no memory. What is left of a read (the head of an unfinished frame, or frames that must wait) is copied into memory of the
connection's own. The head of a frame goes back to the head of the shared buffer before the next read. A frame that does not fit the shared
buffer gets a bytearray of exactly its size (`BufferSupplier`), but only once FIRST_BYTES of it came and at first not more than
FIRST_ALLOCATION: a length that lies costs us little. Before that it needs room among those of all connections (`FrameMemory`). Then the
kernel may keep as much for the connection, too, so that such frames come in few reads.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, Protocol

from broker.network.buffer_supplier import LARGEST_KEPT
from broker.network.limits import FIRST_BYTES, FULL_WINDOW_BYTES
from broker.network.receive_buffer import LARGEST_BYTES, set_receive_buffer
from protocol.cursors import fields

if TYPE_CHECKING:
    from broker.network.processor import Processor

FIRST_ALLOCATION: Final = LARGEST_KEPT


class Owner(Protocol):
    """The connection whose bytes these are."""

    def is_urgent(self, view: memoryview, begin: int, end: int) -> bool:
        """See `RequestHandler`."""

    def on_room(self) -> None:
        """There is room for the frame that comes in."""


class FrameReader:
    """See the module. Frames that can be handled are in `view[start:end]`, from `receive` or `take_kept` until `on_handled`.

    `data` is `view` for compiled code.
    `growing`: the socket, while the kernel's receive buffer may grow with the frames.
    """

    __slots__ = (
        "_filled",
        "_from",
        "_grown",
        "_lent",
        "_owner",
        "_processor",
        "_rest",
        "_taken",
        "data",
        "end",
        "growing",
        "start",
        "view",
    )

    def __init__(self, owner: Owner, processor: Processor) -> None:
        self._owner: Owner | None = owner  # None once the connection is gone
        self._processor = processor
        self.view = self._processor.view
        self.data = self._processor.data
        self.start = 0
        self.end = 0
        self.growing: socket.socket | None = None
        self._rest: bytearray | None = None
        self._from = 0  # where the unhandled bytes of _rest begin
        self._filled = 0  # bytes of _rest that came, while a large frame is read right into it; else 0
        self._lent: bytearray | None = None  # the memory of `view`, when it is the connection's own
        self._taken = 0  # of the frame memory, for the frame that comes in
        self._grown = 0  # what the kernel's buffer grew to

    def buffer(self) -> memoryview:
        """Where the next bytes are received into."""
        processor = self._processor
        rest = self._rest
        if rest is None:
            return processor.window if processor.channel.full else processor.view
        if self._filled:
            return memoryview(rest)[self._filled :]
        # Stays in _rest until bytes really came: a read may yield none.
        kept = len(rest) - self._from
        view = processor.view
        view[:kept] = memoryview(rest)[self._from :]
        return view[kept : kept + FULL_WINDOW_BYTES] if processor.channel.full else view[kept:]

    def receive(self, count: int) -> bool:
        """`count` bytes came into `buffer`; whether there may be frames to handle now."""
        rest = self._rest
        if rest is None:
            self.start = 0
            self.end = count
            return True
        if self._filled:
            self._filled += count
            return self._filled == len(rest) and self._fill(rest)
        self._rest = None
        self.start = 0
        self.end = len(rest) - self._from + count
        return True

    def _fill(self, rest: bytearray) -> bool:
        """The memory of a large frame is full: whether that is all of it. If not, it gets more."""
        total = 4 + fields.int32(rest, 0)
        if len(rest) == total:
            self._rest = None
            self._filled = 0
            self._give_back()
            self._lend(rest, 0)
            return True
        self._rest = larger = self._processor.buffers.get(min(total, 2 * len(rest)))
        larger[: len(rest)] = rest
        self._processor.buffers.release(rest)
        return False

    def _lend(self, memory: bytearray, start: int) -> None:
        self._lent = memory
        self.view = memoryview(memory)
        self.data = self.view
        self.start = start
        self.end = len(memory)

    def take_kept(self) -> bool:
        """Whether there is something of what `keep_all` kept, to be handled now."""
        rest = self._rest
        if rest is None or self._filled:
            return False
        self._rest = None
        self._lend(rest, self._from)
        return True

    def on_handled(self) -> None:
        """What is not kept again by now is not needed any more."""
        memory = self._lent
        if memory is not None:
            self._lent = None
            self.view = self._processor.view
            self.data = self._processor.data
            if memory is not self._rest:
                self._processor.buffers.release(memory)

    def keep_head(self, start: int) -> bool:
        """Keep the head of a frame whose rest is still to come; False when there is no room for it: nothing more must be read."""
        view, end = self.view, self.end
        kept = end - start
        if kept >= FIRST_BYTES:
            total = 4 + fields.int32(self.data, start)
            if total > len(self._processor.view):
                return self._allocate(start, total)
        self._rest = bytearray(view[start:end])
        self._from = 0
        return True

    def _allocate(self, start: int, total: int) -> bool:
        """Memory for a large frame of `total` bytes with its length."""
        view, end = self.view, self.end
        self._from = 0
        if not self._take(total, start):
            self._rest = bytearray(view[start:end])
            return False
        if self.growing is not None and total > self._grown:
            self._grow(self.growing, total)
        self._rest = memory = self._processor.buffers.get(min(total, FIRST_ALLOCATION))
        self._filled = end - start
        memory[: self._filled] = view[start:end]
        return True

    def _take(self, size: int, start: int) -> bool:
        """Room for the frame that begins at `start`. What is urgent needs none."""
        owner = self._owner
        if self._taken or owner is None or owner.is_urgent(self.view, start + 4, self.end):
            return True
        if self._processor.channel.frame_memory.take(owner, size):
            self._taken = size
        return self._taken > 0

    def on_room(self) -> None:
        """The frame that comes in has room now."""
        if self._rest is not None:
            self._taken = 4 + fields.int32(self._rest, self._from)

    def _grow(self, sock: socket.socket, size: int) -> None:
        """Frames of that size come. As for the memory, in powers of two: sizes that creep up cost no calls."""
        self._grown = min(1 << (size - 1).bit_length(), LARGEST_BYTES)
        set_receive_buffer(sock, self._grown)
        if self._grown == LARGEST_BYTES:
            self.growing = None

    def _give_back(self) -> None:
        size, self._taken = self._taken, 0
        if size:
            self._processor.channel.frame_memory.give_back(size)

    def keep_all(self, start: int) -> None:
        """Keep frames that must wait. The caller stops reading. Memory that is the connection's own already is not copied."""
        if self._lent is None:
            self._rest = bytearray(self.view[start : self.end])
            self._from = 0
        else:
            self._rest = self._lent
            self._from = start

    @property
    def kept_bytes(self) -> int:
        """The memory that this connection keeps for bytes it received."""
        return 0 if self._rest is None else len(self._rest)

    def keeps_frame(self) -> bool:
        """Whether a complete frame is kept."""
        rest = self._rest
        if rest is None or self._filled:
            return False
        size = len(rest) - self._from
        return size >= 4 and 4 + fields.int32(rest, self._from) <= size

    def holds_frame(self, start: int) -> bool:
        """Whether a frame that begins at `start` of `view` is complete, or can never be because its length is none."""
        size = self.end - start
        return size >= 4 and 4 + fields.int32(self.data, start) <= size

    def first_kept_frame(self) -> memoryview:
        """The first frame that is kept; there is one."""
        rest = self._rest
        if rest is None:
            raise ValueError("nothing is kept")
        begin = self._from + 4
        return memoryview(rest)[begin : begin + fields.int32(rest, self._from)]

    def forget(self) -> None:
        """The connection is gone."""
        self._rest = None
        self._filled = 0
        self.growing = None
        owner, self._owner = self._owner, None
        if owner is not None:
            self._processor.channel.frame_memory.withdraw(owner)
        self._give_back()
