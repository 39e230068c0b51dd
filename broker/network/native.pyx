# cython: language_level=3
"""Calls C functions that send answers and keep memory for them. Compiled, so no objects are made for arguments and results."""

from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport int64_t
from posix.types cimport off_t

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int out, int file, off_t *offset, size_t count)

cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static int keep_freed(int mapped_from, int kept) {
        return mallopt(M_MMAP_THRESHOLD, mapped_from) && mallopt(M_TRIM_THRESHOLD, kept);
    }
    static int give_back(int kept) { return malloc_trim(kept); }
    #else
    static int keep_freed(int mapped_from, int kept) { return 0; }
    static int give_back(int kept) { return 0; }
    #endif
    """
    int keep_freed(int mapped_from, int kept) nogil
    int give_back(int kept) nogil


def keep_freed_memory(int mapped_from, int kept):
    """Have malloc map blocks from `mapped_from` bytes on, and keep up to `kept` freed bytes. Returns whether the C library can."""
    return keep_freed(mapped_from, kept) != 0


def give_back_freed_memory(int kept):
    """Have malloc give back free memory but for `kept` bytes at its end; other threads run meanwhile. Returns whether it had any."""
    cdef int had_any
    with nogil:
        had_any = give_back(kept)
    return had_any != 0


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
