from libc.stdint cimport int64_t
from ottla.storage.segment.file_region cimport FileRegion
from ottla.storage.segment.segment cimport Segment

cdef int64_t NO_EPOCH, NO_PREFERENCE

cdef class AskedPartition:
    cdef readonly bytes topic_id
    cdef readonly int64_t index
    cdef readonly int64_t offset, max_bytes, leader_epoch, last_fetched_epoch, start
    cdef public int64_t end_offset, open_size
    cdef public Segment open_segment
    cdef public int64_t high_watermark, last_stable_offset, log_start_offset, preferred_read_replica, diverging_epoch, diverging_end_offset
    cdef public FileRegion region
    cdef public object aborted

    cpdef void identify(self, bytes topic_id, int64_t index) except *
    cpdef void ask(self, int64_t offset, int64_t max_bytes, int64_t leader_epoch, int64_t last_fetched_epoch, int64_t start) except *
