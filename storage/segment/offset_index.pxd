from libc.stdint cimport int64_t
from protocol.cursors cimport fields
from storage.segment.index_file cimport IndexFile

cdef int64_t MAX_RELATIVE_OFFSET

cdef class OffsetIndex(IndexFile):
    cdef public object _line
    cdef public int64_t _line_entries, last_offset

    cpdef void append(self, int64_t offset, int64_t position) except *
    cpdef void add(self, int64_t offset, int64_t position) except *
    cpdef void take_back(self, int64_t entries, int64_t last_offset) except *
