from libc.stdint cimport int64_t

cdef int64_t TAIL_BYTES

cdef class IndexFile:
    cdef public object _filesystem, _map, _view, path
    cdef public bytearray _tail
    cdef public int64_t _mapped, _written, base_offset, entries, entry_size, full_at, length, max_entries, max_size

    cpdef void write_out(self) except *
    cpdef void spill(self) except *
    cpdef void truncate_to_entries(self, int64_t entries) except *
