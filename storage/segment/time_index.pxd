from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.storage.segment.index_file cimport IndexFile

cdef int64_t NO_TIMESTAMP

cdef class TimeIndex(IndexFile):
    cdef public int64_t last_offset, last_timestamp

    cpdef void maybe_append(self, int64_t timestamp, int64_t offset) except *
    cpdef void maybe_add(self, int64_t timestamp, int64_t offset) except *
    cpdef void take_back(self, int64_t entries, int64_t last_timestamp, int64_t last_offset) except *
