# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Gathers the parts of most fetches, and sends what leaves a socket without waiting for the client or the disk, compiled.

Stands in for `gather_fetch` and for the beginning of `FileSender._send_at_once`, which goes on where this ends;
`tests/unit/network/test_sending_at_once.py` passes with it and without. Calls that cannot wait let no other thread in: a system call takes
a fraction of what that does.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from posix.types cimport off_t

from protocol.big_endian cimport put32
from storage.cached_read cimport read_cached
from storage.native cimport INLINE_BYTES, PAGE_BYTES, Region, bytes_to_copy

from storage.file_region import FileRegion
from storage.real_file import RealFile

if not issubclass(FileRegion, Region):
    raise ImportError("storage.native is not in use, whose fields are read here")

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
            length = (<Region>region).length
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
    cdef iovec[MAX_VECTOR] vector
    cdef char[PAGE_BYTES] page
    cdef Py_ssize_t count = len(parts), number, gone = 0, size
    cdef int in_vector = 0, file = -1
    cdef int64_t copied, length
    cdef Region region = None
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
                    return gone, 0, False
                vector[in_vector].iov_base = PyBytes_AS_STRING(part)
                vector[in_vector].iov_len = <size_t>PyBytes_GET_SIZE(part)
                in_vector += 1
                continue
            if type(part) is not FileRegion:
                return gone, 0, False
            region = <Region>part
            copied = bytes_to_copy(region.position, region.length)
            if not copied or not region.end_is_cached:
                return gone, 0, False
            length = region.length
            of = region.file
            file = of.descriptor if type(of) is RealFile else of.fileno()
            if region.begun is not None:
                vector[in_vector].iov_base = PyBytes_AS_STRING(region.begun)
            elif read_cached(file, page, <size_t>copied, region.position) == copied:
                vector[in_vector].iov_base = page
            else:
                return gone, 0, False
            vector[in_vector].iov_len = <size_t>copied
            in_vector += 1
        elif not in_vector:
            break
        sent = send_vector(out, vector, in_vector, (MSG_MORE if length else 0) | MSG_DONTWAIT)
        if sent < 0:
            return gone, 0, errno == EAGAIN
        in_vector = 0
        while gone < number:
            size = PyBytes_GET_SIZE(parts[gone])
            if sent < size:
                return gone, sent, True
            sent -= size
            gone += 1
        if sent < copied:
            return gone, sent, True
        if length:
            at = region.position + copied
            left = length - copied
            with nogil:
                sent = sendfile(out, file, &at, <size_t>left)
            if sent < 0:
                return gone, copied, errno == EAGAIN
            if sent != left:
                return gone, copied + sent, sent > 0
            gone += 1
    return gone, 0, False
