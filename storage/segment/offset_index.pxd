cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport Bytes
from ottla.storage.segment.index_file cimport IndexFile, last_slot

cdef int64_t ENTRY_SIZE, MAX_RELATIVE_OFFSET, POSITION_AT

cdef class OffsetIndex(IndexFile):
    cdef public int64_t last_offset

    cpdef void append(self, int64_t offset, int64_t position) except *
    cpdef void add(self, int64_t offset, int64_t position) except *
    cpdef void take_back(self, int64_t entries, int64_t last_offset) except *
    @cython.locals(
        target=int64_t, relative=int64_t, base_offset=int64_t, is_in_memory=bint, entries=Bytes, count=int64_t, slot=int64_t,
        first=int64_t, position=int64_t, second=int64_t, next_position=int64_t)
    cpdef (int64_t, int64_t, int64_t, int64_t) bracket(self, int64_t offset) except *
    @cython.locals(entries=Bytes, count=int64_t, slot=int64_t, offset=int64_t, found=int64_t)
    cpdef (int64_t, int64_t) lookup_position(self, int64_t position) except *
    cdef bint _is_in_memory(self, int64_t target, int64_t at) except -1
