# Declares the functions of room.py in C for compiled callers.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #ifdef __linux__
    #include <sys/mman.h>
    /* Of whole blocks of 64 KiB, which are pages of any size. */
    static void lose_pages(void *start, size_t size) {
        uintptr_t first = ((uintptr_t)start + 65535) & ~(uintptr_t)65535, last = ((uintptr_t)start + size) & ~(uintptr_t)65535;
        if (last > first) madvise((void *)first, last - first, MADV_DONTNEED);
    }
    #else
    static void lose_pages(void *start, size_t size) {}
    #endif
    """
    void lose_pages(void *start, size_t size) nogil

# Bytes whose copy takes so long that other threads should run meanwhile.
cdef enum:
    LONG_BYTES = 65536

cdef inline bytearray room_for(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)

cdef inline Py_ssize_t put_long(bytearray room, Py_ssize_t at, const uint8_t[::1] value) except -1:
    cdef Py_ssize_t size = value.shape[0]
    if room is None or at < 0 or size > PyByteArray_GET_SIZE(room) - at:
        raise IndexError("the room is too small")
    cdef uint8_t *to = <uint8_t *>PyByteArray_AS_STRING(room) + at
    if size > LONG_BYTES:
        with nogil:
            memcpy(to, &value[0], size)
    elif size:
        memcpy(to, &value[0], size)
    return at + size

cdef inline int give_back(uint8_t[::1] data, Py_ssize_t start) except -1:
    cdef Py_ssize_t size = data.shape[0] - start
    cdef void *first
    if start < 0 or size < 0:
        raise IndexError("the room is too small")
    if size > LONG_BYTES:
        first = &data[start]
        with nogil:
            lose_pages(first, size)
    return 0

cdef inline bytes join(list pieces):
    cdef Py_ssize_t size = 0, at = 0, length
    cdef const uint8_t[::1] value
    cdef bytes joined
    cdef uint8_t *to
    for piece in pieces:
        size += len(piece)
    if size <= LONG_BYTES:
        return b"".join(pieces)
    joined = PyBytes_FromStringAndSize(NULL, size)
    to = <uint8_t *>PyBytes_AS_STRING(joined)
    for piece in pieces:
        value = piece
        length = value.shape[0]
        if length > size - at:
            raise IndexError("a piece has grown")
        if length > LONG_BYTES:
            with nogil:
                memcpy(to + at, &value[0], length)
        elif length:
            memcpy(to + at, &value[0], length)
        at += length
    if at != size:
        raise IndexError("a piece has shrunk")
    return joined
