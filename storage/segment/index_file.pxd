cimport cython
from libc.stdint cimport int64_t, uint8_t
from ottla.protocol.cursors cimport fields

cdef int64_t STRAIGHT_LINES, TAIL_BYTES, WARM_BYTES

cdef class IndexFile:
    cdef public object _filesystem, _map, path
    cdef public bytearray _tail
    cdef const uint8_t[::1] _view
    cdef public int64_t _mapped, _written, base_offset, entries, entry_size, full_at, length, max_entries, max_size

    cpdef void write_out(self) except *
    cpdef void spill(self) except *
    cpdef void truncate_to_entries(self, int64_t entries) except *

    cpdef int64_t last_slot(self, int64_t target, int64_t at, bint is_long=*) except -2
    cdef const uint8_t[::1] _mapped_entries(self)

@cython.locals(high=int64_t, low=int64_t, above=int64_t, below=int64_t, lines=int64_t, slot=int64_t, number=int64_t)
cpdef int64_t last_slot(const uint8_t[::1] data, int64_t count, int64_t size, int64_t at, bint is_long, int64_t target) except -2
cdef int64_t _number(const uint8_t[::1] data, int64_t at, bint is_long) except? -9000000000000000011
