cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields

cdef int64_t PACKET_BYTES, CHUNK_BYTES, TAIL_BYTES

cdef class FileSender:
    cdef object _connection, _loop, _parts, _pulling, _sock, _transport
    cdef public int64_t _piece
    cdef int64_t _position, _warm
    cdef int _writer
    cdef bint _closed

    cpdef bint send(self, list parts) except -1
    cpdef void pump(self) except *
    @cython.locals(size=int64_t, at=int64_t, end=int64_t, length=int64_t)
    cdef int64_t _write_piece(self) except -1
    @cython.locals(size=int64_t)
    cdef int64_t _piece_size(self) except -1
    @cython.locals(length=int64_t, at=int64_t, asked=int64_t)
    cdef bint _read(self, object region, object room) except -1
