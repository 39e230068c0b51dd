"""Receives the bytes of one connection, and keeps those that cannot be handled yet.

A `Connection` owns one, and handles the frames that it finds. Bytes are received into the processor's shared buffer, so an idle connection
holds no memory. Unhandled bytes (the head of an unfinished frame, or frames that must wait) are copied into memory of the connection.
Before the next read the head of a frame is copied back to the head of the shared buffer.

A frame that does not fit into the shared buffer gets a bytearray of exactly its size (`BufferSupplier`). But it gets it only after
FIRST_BYTES of the frame arrived, and at first not more than FIRST_ALLOCATION, so that a false length costs little. Before that the frame
needs room in the memory for all connections (`FrameMemory`), or counts there as it arrives. Then the kernel's buffer of the connection may
grow as well, so that such frames arrive in few reads.

Kept bytes of other frames count in `RequestChannel.unhandled_bytes`. While these are many, connections are read in small windows, and an
unfinished frame of any size needs room.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol, final

from ottla.broker.network.buffer_supplier import LARGEST_KEPT
from ottla.broker.network.limits import FIRST_BYTES, FULL_WINDOW_BYTES, LARGE_WINDOW_BYTES, NS_PER_BYTE, PATIENCE_NS
from ottla.broker.network.processor import Processor
from ottla.broker.network.receive_buffer import LARGEST_BYTES, set_receive_buffer
from ottla.protocol.cursors import fields

FIRST_ALLOCATION: Final = LARGEST_KEPT
HEAD_BYTES: Final = 6
"""Length and API key of a frame. Before both have arrived, the frame may be urgent."""


class Owner(Protocol):
    """The connection that receives the bytes."""

    def is_urgent(self, view: memoryview, begin: int, end: int) -> bool:
        """See `RequestHandler`."""

    def on_starved(self) -> None:
        """Called when there is no memory for more of the incoming frame, so that reading must stop."""

    def on_room(self) -> None:
        """Called when there is memory for the incoming frame."""

    def on_kept(self) -> None:
        """Called when bytes are kept, and when the memory for them grows."""


@final
class FrameReader:
    """The reader of one connection. From `receive` or `take_kept` until `on_handled` the frames to handle are in `view[start:end]`.

    `data` is `view` for compiled code. `growing` is the socket, while the kernel's receive buffer may grow with the frames. `is_held_back`:
    whether bytes are kept that are to be handled before more are received.
    """

    __slots__ = (
        "_due_ns",
        "_filled",
        "_from",
        "_grown",
        "_held",
        "_is_counted",
        "_lent",
        "_owner",
        "_part",
        "_processor",
        "_rest",
        "_taken",
        "data",
        "end",
        "growing",
        "is_held_back",
        "start",
        "view",
    )

    def __init__(self, owner: Owner, processor: Processor) -> None:
        self._owner: Owner | None = owner  # None once the connection is gone
        self._processor = processor
        self.view = self._processor.view
        self.data: fields.View = self._processor.data
        self.start = 0
        self.end = 0
        self.growing: socket.socket | None = None
        self.is_held_back = False
        self._rest: bytearray | None = None
        self._from = 0  # start of the unhandled bytes in _rest
        self._filled = 0  # received bytes in _rest while a large frame is read into it; else 0
        self._lent: bytearray | None = None  # the memory of `view`, if it belongs to the connection
        self._is_counted = False  # whether the incoming frame takes part in the frame memory
        self._taken = 0  # bytes of the frame memory that are reserved for it
        self._part = 0  # bytes of it that arrived without
        self._due_ns = 0  # time by which more of it has to arrive, or answers have to be read, if others wait
        self._grown = 0  # size of the kernel's buffer after it grew
        self._held = 0  # bytes in _rest that count in unhandled_bytes

    def buffer(self) -> memoryview:
        """The buffer for the next read."""
        processor = self._processor
        channel = processor.channel
        is_narrow = channel.full or channel.is_spent or channel.unhandled_bytes > channel.most_unhandled_bytes
        rest = self._rest
        if rest is None:
            return processor.window if is_narrow else processor.view
        if self._filled:
            if self._filled == len(rest):
                self._widen(rest)
            is_narrow = channel.is_spent or channel.frame_memory.parts_are_many
            return memoryview(rest)[self._filled : self._filled + LARGE_WINDOW_BYTES if is_narrow else None]
        kept = len(rest) - self._from
        view = processor.view
        if not is_narrow:
            return view[kept:]
        room = 0 if channel.is_spent else self._taken  # all that has room may come, in a later turn
        return view[kept : max(kept + FULL_WINDOW_BYTES, room)]

    def receive(self, count: int) -> bool:
        """Note that `count` bytes were received into `buffer`. Returns whether there may be frames to handle."""
        rest = self._rest
        if rest is None:
            self.start = 0
            self.end = count
            return True
        if self._filled:
            self._filled += count
            if self._filled == len(rest) and self._fill(rest):
                return True
            self._count(count)
            return False
        # The shorter part is copied, and only now: a turn of the loop may read a little of thousands of connections, or nothing.
        kept = len(rest) - self._from
        view = self._processor.view
        self._rest = None
        self._hold(0)
        if count < kept and not self._from:
            rest += view[kept : kept + count]
            self._lend(rest, 0)
            return True
        view[:kept] = memoryview(rest)[self._from :]
        self.start = 0
        self.end = kept + count
        return True

    def _fill(self, rest: bytearray) -> bool:
        """Return whether a large frame is complete, now that its memory is full."""
        if len(rest) < 4 + fields.int32(rest, 0):
            return False
        self._rest = None
        self._filled = 0
        self._lend(rest, 0)
        return True

    def _widen(self, rest: bytearray) -> None:
        """Make the memory, which is full, as large as its frame. Only now, because the transport keeps a view of it until a read ends."""
        fields.widen(rest, 4 + fields.int32(rest, 0))
        self._on_kept()

    def _lend(self, memory: bytearray, start: int) -> None:
        self._lent = memory
        self.view = memoryview(memory)
        self.data = self.view
        self.start = start
        self.end = len(memory)

    def take_kept(self) -> bool:
        """Take the bytes that `keep_all` kept, to handle them now. Returns whether there are any."""
        rest = self._rest
        if rest is None or self._filled:
            return False
        self._rest = None
        self._hold(0)
        self.is_held_back = False
        self._lend(rest, self._from)
        return True

    def _hold(self, size: int) -> None:
        """Count the bytes that are kept now. Those of a large frame count in the frame memory."""
        self._processor.channel.unhandled_bytes += size - self._held
        self._held = size

    def on_handled(self) -> None:
        """Release memory that was not kept again."""
        memory = self._lent
        if self._is_counted and self._rest is None:
            self.give_back()
        if memory is not None:
            self._lent = None
            self.view = self._processor.view
            self.data = self._processor.data
            if memory is not self._rest:
                self._processor.buffers.release(memory)

    def keep_head(self, start: int) -> None:
        """Keep the head of an incomplete frame."""
        if self._is_counted and start != self.start:
            self.give_back()  # the frame that counted was handled
        if self.begins_large_frame(start):
            self._allocate(start, 4 + fields.int32(self.data, start))
            return
        # Memory of the connection can grow as long as no handler has seen a part of it.
        self._rest = bytearray(self.view[start : self.end]) if self._lent is None or start else self._lent
        self._from = 0
        self._hold(self.end - start)
        self._on_kept()
        channel = self._processor.channel
        if (
            channel.unhandled_bytes > channel.most_unhandled_bytes
            and self.end - start >= HEAD_BYTES
            and not self._take(4 + fields.int32(self.data, start), start, True)
        ):
            self._starve()

    def _on_kept(self) -> None:
        owner = self._owner
        if owner is not None:
            owner.on_kept()

    def _allocate(self, start: int, total: int) -> None:
        """Get memory for a large frame of `total` bytes, including its length."""
        view, end = self.view, self.end
        self._from = 0
        if not self._take(total, start, self._processor.channel.frame_memory.needs_room(total)):
            self._rest = bytearray(view[start:end])
            self._hold(end - start)
            self._on_kept()
            self._starve()
            return
        if self.growing is not None and total > self._grown:
            self._grow(self.growing, total)
        self._rest = memory = self._memory(min(total, FIRST_ALLOCATION))
        self._filled = end - start
        memory[: self._filled] = view[start:end]
        self._on_kept()
        self._count(self._filled)

    def _memory(self, size: int) -> bytearray:
        """Memory of `size` bytes. Compiled, new memory takes no page before its bytes have been received."""
        memory = self._processor.buffers.get(size)
        return fields.room_for(size) if memory is None else memory

    def _take(self, size: int, start: int, needs_room: bool) -> bool:
        """Take room for the frame that begins at `start`, if it needs room. Urgent frames need none."""
        owner = self._owner
        if self._taken or owner is None or owner.is_urgent(self.view, start + 4, self.end):
            return True
        self._is_counted = True
        self.expect()
        if not needs_room:
            return True
        if self._processor.channel.frame_memory.take(owner, size):
            self._taken = size
        return self._taken > 0

    def _count(self, count: int) -> None:
        """Count `count` bytes of a large frame that have arrived. If too many have arrived without room, it needs room for its rest."""
        owner, rest = self._owner, self._rest
        if not self._is_counted or owner is None or rest is None:
            return
        now_ns: int = self._processor.clock_ns()
        self._due_ns = min(max(self._due_ns, now_ns) + count * NS_PER_BYTE, now_ns + PATIENCE_NS)
        if self._taken:
            return
        memory = self._processor.channel.frame_memory
        self._part += count
        memory.parts += count
        if memory.parts_are_many:
            lacking = 4 + fields.int32(rest, 0) - self._filled
            if memory.take(owner, lacking):
                self._taken = lacking
            else:
                self._starve()

    def _starve(self) -> None:
        owner = self._owner
        if owner is not None:
            owner.on_starved()

    def on_room(self) -> None:
        """Note that the incoming frame has room now for all that it lacks."""
        if self._rest is not None:
            self._taken = 4 + fields.int32(self._rest, self._from) - self._filled

    def expect(self) -> None:
        """Begin to expect more of the incoming frame, now that it is read."""
        now_ns: int = self._processor.clock_ns()
        self._due_ns = now_ns + PATIENCE_NS

    def is_late(self, now_ns: int) -> bool:
        """Whether a frame takes memory, and what its client has to do next is due."""
        return self._is_counted and now_ns > self._due_ns

    def holds_too_long(self, now_ns: int, since_ns: int) -> bool:
        """Whether more than a small window is held, and nothing happened since `since_ns` for the patience of others."""
        due_ns: int = self._due_ns if self._is_counted else since_ns + PATIENCE_NS
        return self._held > FULL_WINDOW_BYTES and now_ns > due_ns

    def _grow(self, sock: socket.socket, size: int) -> None:
        """Enlarge the kernel's buffer for frames of `size`, in powers of two, so that slowly growing sizes cost no system calls."""
        self._grown = min(1 << (size - 1).bit_length(), LARGEST_BYTES)
        set_receive_buffer(sock, self._grown)
        if self._grown == LARGEST_BYTES:
            self.growing = None

    def give_back(self) -> None:
        """Return the room of a large frame: it is handled, or is counted where it waits."""
        memory = self._processor.channel.frame_memory
        memory.parts -= self._part
        self._part = 0
        self._is_counted = False
        size = self._taken
        self._taken = 0
        if size:
            memory.give_back(size)

    def keep_all(self, start: int) -> None:
        """Keep frames that must wait. The caller stops reading. Memory that already belongs to the connection is not copied."""
        self.is_held_back = True
        if self._lent is None:
            self._rest = bytearray(self.view[start : self.end])
            self._from = 0
        else:
            self._rest = self._lent
            self._from = start
        size = len(self._rest)
        if size <= len(self._processor.view):
            self._hold(size)
            if self._is_counted:
                self.give_back()
        self._on_kept()

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory that hold received bytes of this connection."""
        return 0 if self._rest is None else len(self._rest)

    def count_kept(self) -> None:
        """Count a large frame that is kept, and counts nowhere else any more. Smaller ones never count here."""
        kept = self.kept_bytes
        if kept > len(self._processor.view):
            self._is_counted = True
            self._part = kept
            self._processor.channel.frame_memory.parts += kept
            self.expect()

    def is_filling(self) -> bool:
        """Whether a large frame is being received."""
        return self._filled > 0

    @property
    def is_counted(self) -> bool:
        """Whether the frame at `start` takes part in the frame memory."""
        return self._is_counted

    def keeps_frame(self) -> bool:
        """Whether a complete frame is kept."""
        rest = self._rest
        if rest is None or self._filled:
            return False
        size = len(rest) - self._from
        return size >= 4 and 4 + fields.int32(rest, self._from) <= size

    def holds_frame(self, start: int) -> bool:
        """Whether a frame that begins at `start` of `view` is complete, or its length is impossible."""
        size = self.end - start
        return size >= 4 and 4 + fields.int32(self.data, start) <= size

    def begins_large_frame(self, start: int) -> bool:
        """Whether memory is due for an incomplete frame that begins at `start` of `view`."""
        return self.end - start >= FIRST_BYTES and 4 + fields.int32(self.data, start) > len(self._processor.view)

    def first_kept_frame(self) -> memoryview:
        """The first kept frame, which must exist."""
        rest = self._rest
        if rest is None:
            raise ValueError("nothing is kept")
        begin = self._from + 4
        return memoryview(rest)[begin : begin + fields.int32(rest, self._from)]

    def forget(self) -> None:
        """Release everything after the connection was lost."""
        self._rest = None
        self._filled = 0
        self._hold(0)
        self.growing = None
        owner, self._owner = self._owner, None
        if owner is not None:
            self._processor.channel.frame_memory.withdraw(owner)
        self.give_back()
