from libc.stdint cimport int64_t

cdef class LogSettings:
    cdef public int64_t file_delete_delay_ms, flush_messages, index_bytes, index_interval_bytes, roll_after_ms, segment_bytes, segment_jitter_ms, segment_ms
    cdef public bint preallocate
