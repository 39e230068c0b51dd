# cython: language_level=3
"""Makes the system calls that send answers, compiled: without objects for what they are given and give."""

from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport int64_t
from posix.types cimport off_t

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int out, int file, off_t *offset, size_t count)


def send_pieces(int out, int source, int64_t position, int64_t length, int64_t piece, int64_t packet):
    """As `broker.network.sendfile.send_pieces`; other threads run meanwhile."""
    cdef int64_t left = length
    cdef size_t asked
    cdef ssize_t sent = 0
    cdef off_t at = position
    with nogil:
        while left > 0:
            asked = <size_t>(left if left < piece or left <= packet else piece)
            sent = sendfile(out, source, &at, asked)
            if sent < 0:
                break
            left -= sent
            if <size_t>sent != asked:
                break
    if sent < 0 and left == length:
        PyErr_SetFromErrno(OSError)
    return length - left
