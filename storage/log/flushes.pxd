from libc.stdint cimport int64_t
from ottla.storage.segment.log_segments cimport LogSegments
from ottla.storage.segment.log_settings cimport LogSettings

cdef int64_t NEVER

cdef class FlushPlan:
    cdef object _clock, _filesystem, _small_files, _snapshot
    cdef bint _has_new_names
    cdef readonly list segments
    cdef public int64_t recovery_point
    cdef readonly double seconds

cdef class Flushes:
    cdef readonly int64_t due_offset, recovery_point, request_offset
    cdef readonly list plans
    cdef int64_t _flush_messages
    cdef object _files, _producers, _rolls
    cdef LogSegments _segments

    cpdef void use_settings(self, LogSettings settings) except *
    cpdef bint covers(self, int64_t end_offset) except -1
    cpdef void become_due(self, int64_t end_offset) except *
    cpdef void advance(self, int64_t offset) except *
    cdef void _request_after(self, int64_t offset) except *
