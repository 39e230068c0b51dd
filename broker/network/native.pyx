# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Gathers the parts of most fetches, and sends what leaves a socket without waiting for the client or the disk, compiled.

Stands in for `gather_fetch` and for the beginning of `FileSender._send_at_once`, which goes on where this ends;
`tests/unit/network/test_sending_at_once.py` passes with it and without. Calls that cannot wait let no other thread in: a system call takes
a fraction of what that does.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from posix.types cimport off_t

from protocol.big_endian cimport i32, put32
from storage.cached_read cimport read_cached
from storage.slots cimport number, set_slot, slot, slot_of_type

from storage.segment.file_region import FileRegion
from storage.disk.real_file import RealFile

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <string.h>
    #include <sys/sendfile.h>
    #include <sys/socket.h>
    #include <sys/uio.h>

    static ssize_t send_vector(int out, struct iovec *vector, size_t count, int flags) {
        struct msghdr message;
        memset(&message, 0, sizeof message);
        message.msg_iov = vector;
        message.msg_iovlen = count;
        return sendmsg(out, &message, flags);
    }
    """
    cdef struct iovec:
        void *iov_base
        size_t iov_len

    ssize_t send_vector(int out, iovec *vector, size_t count, int flags)
    ssize_t sendfile(int out, int file, off_t *offset, size_t count)
    int MSG_MORE
    int MSG_DONTWAIT

cdef enum:
    MAX_VECTOR = 16
    PAGE_BYTES = 4096
    INLINE_BYTES = 16384
    PACKET_BYTES = 65536


cdef inline int64_t bytes_to_copy(int64_t position, int64_t length) noexcept nogil:
    # Up to the next page of the file, where what follows leaves as one packet; 0 for a region that is sent in any other way.
    cdef int64_t copied = PAGE_BYTES - (position & (PAGE_BYTES - 1))
    return copied if copied < PAGE_BYTES and length > INLINE_BYTES and length - copied <= PACKET_BYTES else 0


def gather_fetch(list parts not None, list out not None):
    """As in `broker.network.gather`; what is no `FileRegion` itself is anything else here."""
    cdef Py_ssize_t size, head_size
    cdef int64_t length
    cdef uint8_t *p
    if len(parts) == 3:
        head = parts[0]
        region = parts[1]
        tail = parts[2]
        if type(head) is bytes and type(region) is FileRegion and type(tail) is bytes:
            length = region.length
            if length > INLINE_BYTES:
                head_size = PyBytes_GET_SIZE(head)
                size = head_size + length + PyBytes_GET_SIZE(tail)
                prefixed = PyBytes_FromStringAndSize(NULL, head_size + 4)
                p = put32(<uint8_t *>PyBytes_AS_STRING(prefixed), <int32_t>size)
                memcpy(p, PyBytes_AS_STRING(head), head_size)
                out.append(prefixed)
                out.append(region)
                out.append(tail)
                return size
    return 0


def send_ready(int out, list parts not None):
    """Send from `parts`, in their order, what the socket takes and what the page cache has.

    (how many parts have left, bytes of the next one that have, whether the socket takes no more). Stops before what is neither bytes nor a
    region as most fetches have it: from the middle of a page on, up to a packet, whose end is known to be cached; and where a call fails.
    """
    cdef Py_ssize_t gone = 0
    cdef int64_t sent = 0
    cdef bint is_full = send_parts(out, parts, &gone, &sent)
    return gone, sent, is_full


cdef bint send_parts(int out, list parts, Py_ssize_t *gone, int64_t *of_next) except -1:
    """As `send_ready`; whether the socket takes no more."""
    cdef iovec[MAX_VECTOR] vector
    cdef char[PAGE_BYTES] page
    cdef Py_ssize_t count = len(parts), number, size
    cdef int in_vector = 0, file = -1
    cdef int64_t copied, length
    cdef bytes begun = None
    cdef int64_t position = 0
    cdef ssize_t sent
    cdef off_t at
    cdef int64_t left = 0
    for number in range(count + 1):
        copied = 0
        length = 0
        if number < count:
            part = parts[number]
            if type(part) is bytes:
                if in_vector == MAX_VECTOR - 1:
                    return False
                vector[in_vector].iov_base = PyBytes_AS_STRING(part)
                vector[in_vector].iov_len = <size_t>PyBytes_GET_SIZE(part)
                in_vector += 1
                continue
            if type(part) is not FileRegion:
                return False
            position = part.position
            copied = bytes_to_copy(position, part.length)
            if not copied or not part.end_is_cached:
                return False
            length = part.length
            of = part.file
            begun = part.begun
            file = of.descriptor if type(of) is RealFile else of.fileno()
            if begun is not None and PyBytes_GET_SIZE(begun) >= copied:
                vector[in_vector].iov_base = PyBytes_AS_STRING(begun)
            elif read_cached(file, page, <size_t>copied, position) == copied:
                vector[in_vector].iov_base = page
            else:
                return False
            vector[in_vector].iov_len = <size_t>copied
            in_vector += 1
        elif not in_vector:
            break
        sent = send_vector(out, vector, in_vector, (MSG_MORE if length else 0) | MSG_DONTWAIT)
        if sent < 0:
            return errno == EAGAIN
        in_vector = 0
        while gone[0] < number:
            size = PyBytes_GET_SIZE(parts[gone[0]])
            if sent < size:
                of_next[0] = sent
                return True
            sent -= size
            gone[0] += 1
        if sent < copied:
            of_next[0] = sent
            return True
        if length:
            at = position + copied
            left = length - copied
            with nogil:
                sent = sendfile(out, file, &at, <size_t>left)
            if sent < 0:
                of_next[0] = copied
                return errno == EAGAIN
            if sent != left:
                of_next[0] = copied + sent
                return sent > 0
            gone[0] += 1
    return False


def send_pieces(int out, int source, int64_t position, int64_t length, int64_t piece):
    """As `broker.network.sendfile.send_pieces`; other threads run meanwhile."""
    cdef int64_t left = length
    cdef size_t asked
    cdef ssize_t sent = 0
    cdef off_t at = position
    with nogil:
        while left > 0:
            asked = <size_t>(left if left < piece or left <= PACKET_BYTES else piece)
            sent = sendfile(out, source, &at, asked)
            if sent < 0:
                break
            left -= sent
            if <size_t>sent != asked:
                break
    if sent < 0 and left == length:
        PyErr_SetFromErrno(OSError)
    return length - left


cdef enum:
    LENGTH_BYTES = 4
    HEADER_BYTES = 8
    FETCH = 1

cdef struct Slots:
    Py_ssize_t processor, rest, received_ns, last_active_ns, state, unsent, has_regions
    Py_ssize_t view, window, channel, clock_ns, handle_several, request_max_bytes
    Py_ssize_t full, inline
    Py_ssize_t transport, timings, sender, sock, parts

cdef Slots slots
cdef type connection_type = None, writer_type = None, processor_type = None, channel_type = None, sender_type = None
cdef Py_ssize_t turn_bytes = 0
cdef int64_t sending = 0, out_of_the_ordinary = 0


def stand_before(
    type connection not None, type processor not None, type channel not None, type sender not None, Py_ssize_t bytes_of_a_turn,
    int64_t sending_bit, int64_t other_bits,
):
    """The classes whose slots the functions below read from now on. What those leave is done by the base of `connection`.

    `sending_bit` is set in its state while the sender is at work; with others of `other_bits`, nothing is sent here.
    """
    global connection_type, writer_type, processor_type, channel_type, sender_type, turn_bytes, sending, out_of_the_ordinary
    slots.processor = slot_of_type(connection, "_processor")
    slots.rest = slot_of_type(connection, "_rest")
    slots.received_ns = slot_of_type(connection, "received_ns")
    slots.last_active_ns = slot_of_type(connection, "last_active_ns")
    slots.state = slot_of_type(connection, "_state")
    slots.unsent = slot_of_type(connection, "_unsent")
    slots.has_regions = slot_of_type(connection, "_has_regions")
    slots.view = slot_of_type(processor, "view")
    slots.window = slot_of_type(processor, "window")
    slots.channel = slot_of_type(processor, "channel")
    slots.clock_ns = slot_of_type(processor, "clock_ns")
    slots.handle_several = slot_of_type(processor, "handle_several")
    slots.request_max_bytes = slot_of_type(processor, "request_max_bytes")
    slots.full = slot_of_type(channel, "full")
    slots.inline = slot_of_type(channel, "inline")
    slots.transport = slot_of_type(connection, "_transport")
    slots.timings = slot_of_type(connection, "timings")
    slots.sender = slot_of_type(connection, "_sender")
    slots.sock = slot_of_type(sender, "_sock")
    slots.parts = slot_of_type(sender, "_parts")
    turn_bytes = bytes_of_a_turn
    sending = sending_bit
    out_of_the_ordinary = other_bits | sending_bit
    connection_type, processor_type, channel_type, sender_type = connection, processor, channel, sender
    writer_type = (<object>connection).__base__


cdef object processor_of(connection):
    """The processor of a connection that keeps nothing and has nothing unsent; None of any other."""
    if type(connection) is connection_type and slot(connection, slots.rest) is None and slot(connection, slots.unsent) is None:
        processor = slot(connection, slots.processor)
        if type(processor) is processor_type and type(slot(processor, slots.channel)) is channel_type:
            return processor
    return None


cdef bint begins_together(view, Py_ssize_t end) except -1:
    """Whether what was received begins with a Fetch, or with a Produce behind which another request begins."""
    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef Py_ssize_t size
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if not LENGTH_BYTES + HEADER_BYTES <= end <= buffer.len:
            return False
        p = <const uint8_t *>buffer.buf
        size = i32(p)
        return size >= HEADER_BYTES and not p[4] and (p[5] == FETCH or (not p[5] and size < end - 2 * LENGTH_BYTES))
    finally:
        PyBuffer_Release(&buffer)


def get_buffer(self, sizehint):
    """`FrameReader.get_buffer`."""
    processor = processor_of(self)
    if processor is None:
        return writer_type.get_buffer(self, sizehint)
    return slot(processor, slots.window if slot(slot(processor, slots.channel), slots.full) is True else slots.view)


def buffer_updated(self, Py_ssize_t nbytes):
    """`FrameReader.buffer_updated`, and the beginning of `Connection.process`: what `handle_several` answers all of goes to the processor."""
    cdef list answers
    cdef Py_ssize_t length
    cdef object position
    processor = processor_of(self)
    if processor is None:
        writer_type.buffer_updated(self, nbytes)
        return
    now = slot(processor, slots.clock_ns)()
    set_slot(self, slots.received_ns, now)
    set_slot(self, slots.last_active_ns, now)
    view = slot(processor, slots.view)
    done = None
    handle_several = slot(processor, slots.handle_several)
    if (
        handle_several is not None
        and number(self, slots.state) == 0
        and slot(slot(processor, slots.channel), slots.inline) is True
        and nbytes <= number(processor, slots.request_max_bytes)
        and begins_together(view, nbytes)
    ):
        try:
            done = handle_several(view, 0, nbytes, self)
        except Exception:
            self._fail()
            return
        if done is not None:
            answers, _, position, length = done
            if 0 < length < turn_bytes and <Py_ssize_t>position == nbytes:
                if len(answers) > 1:
                    set_slot(self, slots.has_regions, True)
                set_slot(self, slots.unsent, answers)
                processor.send_soon(self)
                return
    self.process(view, 0, nbytes, False, done)


def send_unsent(self):
    """`AnswerWriter.send_unsent`."""
    cdef Py_ssize_t gone = 0
    cdef int64_t sent = 0
    cdef bint is_full
    if type(self) is connection_type:
        out = slot(self, slots.unsent)
        if out is None:
            return
        if slot(self, slots.timings) or number(self, slots.state) & out_of_the_ordinary:
            writer_type.send_unsent(self)
            return
        if slot(self, slots.has_regions) is False:
            set_slot(self, slots.unsent, None)
            try:
                slot(self, slots.transport).write(b"".join(out))
            except Exception:
                self._fail()
            return
        sender = slot(self, slots.sender)
        if (
            type(sender) is sender_type
            and slot(sender, slots.sock) is not None
            and not slot(sender, slots.parts)
            and not slot(self, slots.transport).get_write_buffer_size()
        ):
            set_slot(self, slots.unsent, None)
            set_slot(self, slots.has_regions, False)
            try:
                is_full = send_parts(slot(sender, slots.sock).fileno(), out, &gone, &sent)
                if gone != len(<list>out) and not sender.send_rest(out, gone, sent, is_full):
                    self._state |= sending
            except Exception:
                self._fail()
            return
    writer_type.send_unsent(self)
