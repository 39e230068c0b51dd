from libc.stdint cimport int64_t

cdef class ValidationRules:
    cdef public bint compact, limits_timestamps, refuses_zstd, takes_log_append_time
    cdef public object compression_codec, compression_level, timestamp_type, topic_partition
    cdef public int64_t magic, max_message_bytes, timestamp_after_max_ms, timestamp_before_max_ms
