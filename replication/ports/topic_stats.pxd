from libc.stdint cimport int64_t

cdef class TopicStats:
    cdef public int64_t messages_in, bytes_in, bytes_out, bytes_rejected, produce_requests, fetch_requests
    cdef public int64_t failed_produce_requests, failed_fetch_requests
    cdef public int64_t replication_bytes_in, replication_bytes_out, reassignment_bytes_in, reassignment_bytes_out
    cdef public int64_t produce_message_conversions, fetch_message_conversions
    cdef public int64_t share_fetch_requests, failed_share_fetch_requests
    cdef public int64_t share_acknowledgement_requests, failed_share_acknowledgement_requests
