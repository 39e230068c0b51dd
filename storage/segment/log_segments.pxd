from libc.stdint cimport int64_t
from ottla.storage.segment.log_settings cimport LogSettings
from ottla.storage.segment.segment cimport Segment

cdef class LogSegments:
    cdef public Segment active
    cdef readonly LogSettings settings
    cdef readonly dict hints
    cdef list _bases, _segments

    cpdef Segment higher(self, int64_t base_offset)
    cpdef Segment floor(self, int64_t offset)
