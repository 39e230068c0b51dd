# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Sends what leaves a socket without waiting for the client or the disk, compiled.

Stands in for the beginning of `FileSender._send_at_once`, which goes on where this ends;
`tests/unit/network/test_sending_at_once.py` passes with it and without. Calls that cannot wait let no other thread in: a system call takes
a fraction of what that does.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t
from posix.types cimport off_t

from storage.cached_read cimport read_cached

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
