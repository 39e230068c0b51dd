"""Receives the bytes of one connection and keeps what is left of a read; the base of `Connection`.

Bytes land in the processor's one shared receive buffer, so an idle connection holds no memory. What is left of a read (the head of an
unfinished frame, or frames that must wait) is copied into memory of the connection's own. The head of a frame goes back to the head of the
shared buffer before the next read. A frame that does not fit the shared buffer gets a bytearray of exactly its size (`BufferSupplier`), but
only once FIRST_BYTES of it came and at first not more than FIRST_ALLOCATION: a length that lies costs us little. Before that it needs room
among those of all connections (`FrameMemory`). Then the kernel may keep as much for the connection, too, so that such frames come in few
reads.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from broker.network.buffer_supplier import LARGEST_KEPT
from broker.network.limits import FULL_WINDOW_BYTES
from broker.network.receive_buffer import LARGEST_BYTES, set_receive_buffer

if TYPE_CHECKING:
    from broker.network.processor import Processor

size_at: Final = Struct(">i").unpack_from

FIRST_BYTES: Final = 64 * 1024
FIRST_ALLOCATION: Final = LARGEST_KEPT


def holds_frame(view: memoryview | bytearray, start: int, end: int) -> bool:
    """Whether a frame that begins at `start` is complete before `end`, or can never be because its length is none."""
    return end - start >= 4 and 4 + size_at(view, start)[0] <= end - start


def split(frames: bytes) -> Iterator[bytes]:
    """Of several behind their lengths, each."""
    position = 0
    while position < len(frames):
        begin = position + 4
        position = begin + size_at(frames, position)[0]
        yield frames[begin:position]


class FrameReader(asyncio.BufferedProtocol):
    """See the module. `received_ns` is when the bytes at hand were read, `last_active_ns` when something last came or left (monotonic).

    `growing`: the socket, while the kernel's receive buffer may grow with the frames.
    """

    __slots__ = ("_filled", "_grown", "_processor", "_rest", "_start", "_taken", "growing", "last_active_ns", "received_ns")

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._rest: bytearray | None = None
        self._start = 0  # where the unhandled bytes of _rest begin
        self._filled = 0  # bytes of _rest that came, while a large frame is read right into it; else 0
        self._taken = 0  # of the frame memory, for the frame that comes in
        self._grown = 0  # what the kernel's buffer grew to
        self.growing: socket.socket | None = None
        self.received_ns = self.last_active_ns = processor.clock_ns()

    def process(self, view: memoryview, start: int, end: int, admitted: bool = False) -> None:
        """Handle the frames in `view`, and keep what is left by `keep_head` or `keep_all`."""
        raise NotImplementedError

    def starve(self) -> None:
        """There is no room for the frame that comes in: read nothing until `on_room`."""
        raise NotImplementedError

    def on_room(self) -> None:
        """The frame that comes in has room now."""
        self._taken = 4 + size_at(cast("bytearray", self._rest), self._start)[0]

    def touch(self) -> None:
        """Something left: not idle."""
        self.last_active_ns = self._processor.clock_ns()

    def get_buffer(self, sizehint: int) -> memoryview:
        processor = self._processor
        rest = self._rest
        if rest is None:
            return processor.window if processor.channel.full else processor.view
        if self._filled:
            return memoryview(rest)[self._filled :]
        # Stays in _rest until bytes really came: a read may yield none.
        kept = len(rest) - self._start
        view = processor.view
        view[:kept] = memoryview(rest)[self._start :]
        return view[kept : kept + FULL_WINDOW_BYTES] if processor.channel.full else view[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        processor = self._processor
        self.received_ns = self.last_active_ns = processor.clock_ns()
        rest = self._rest
        if rest is None:
            self.process(processor.view, 0, nbytes)
        elif self._filled:
            self._filled += nbytes
            if self._filled == len(rest):
                self._on_allocation_filled(rest)
        else:
            self._rest = None
            self.process(processor.view, 0, len(rest) - self._start + nbytes)

    def keep_head(self, view: memoryview, start: int, end: int) -> None:
        """Keep the head of a frame whose rest is still to come."""
        kept = end - start
        if kept >= FIRST_BYTES:
            total = 4 + size_at(view, start)[0]
            if total > len(self._processor.view):
                if not self._take(total, view, start):
                    self._rest = bytearray(view[start:end])
                    self._start = 0
                    self.starve()
                    return
                if self.growing is not None and total > self._grown:
                    self._grow(self.growing, total)
                self._rest = self._processor.buffers.get(min(total, FIRST_ALLOCATION))
                self._rest[:kept] = view[start:end]
                self._start = 0
                self._filled = kept
                return
        self._rest = bytearray(view[start:end])
        self._start = 0

    def _take(self, size: int, view: memoryview, start: int) -> bool:
        """Room for the frame that begins at `start`. What brokers ask of each other needs none."""
        channel = self._processor.channel
        if self._taken or channel.is_urgent(view, start + 4, len(view)):
            return True
        if channel.frame_memory.take(self, size):
            self._taken = size
        return self._taken > 0

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

    def keep_all(self, view: memoryview, start: int, end: int) -> None:
        """Keep frames that must wait. The caller stops reading. Memory that is the connection's own already is not copied."""
        if view.obj is self._processor.buffer:
            self._rest = bytearray(view[start:end])
            self._start = 0
        else:
            self._rest = cast("bytearray", view.obj)
            self._start = start

    @property
    def kept_bytes(self) -> int:
        """The memory that this connection keeps for bytes it received."""
        return 0 if self._rest is None else len(self._rest)

    def release(self, memory: bytearray) -> None:
        """What was received into `memory` is handled, unless it is kept again."""
        if memory is not self._rest:
            self._processor.buffers.release(memory)

    def take_kept(self) -> tuple[memoryview, int, int] | None:
        """What `keep_all` kept, to be handled now."""
        rest = self._rest
        if rest is None or self._filled:
            return None
        self._rest = None
        return memoryview(rest), self._start, len(rest)

    def keeps_frame(self) -> bool:
        """Whether a complete frame is kept."""
        rest = self._rest
        return rest is not None and not self._filled and holds_frame(rest, self._start, len(rest))

    def first_kept_frame(self) -> memoryview:
        """The first frame that is kept; there is one."""
        rest = cast("bytearray", self._rest)
        begin = self._start + 4
        return memoryview(rest)[begin : begin + size_at(rest, self._start)[0]]

    def forget(self) -> None:
        """The connection is gone."""
        self._rest = None
        self._filled = 0
        self.growing = None
        self._processor.channel.frame_memory.withdraw(self)
        self._give_back()

    def _on_allocation_filled(self, rest: bytearray) -> None:
        total = 4 + size_at(rest)[0]
        if len(rest) == total:
            self._rest = None
            self._filled = 0
            self.process(memoryview(rest), 0, total)
            self._give_back()
        else:
            self._rest = larger = self._processor.buffers.get(min(total, 2 * len(rest)))
            larger[: len(rest)] = rest
        self.release(rest)
