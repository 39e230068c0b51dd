# The fields of a Fetch of one partition, and the head of its answer, for those who answer it without Python between.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef enum:
    HEAD_WITH_ID_BYTES = 80


cdef struct FetchOfOne:
    int32_t replica_id
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int32_t isolation_level
    int32_t session_id
    int32_t session_epoch
    const uint8_t *topic_id
    int32_t partition
    int32_t leader_epoch
    int64_t fetch_offset
    int32_t last_fetched_epoch
    int64_t log_start_offset
    int32_t partition_max_bytes


cdef bint parse_with_id(const uint8_t *p, Py_ssize_t length, int version, FetchOfOne *fetch) noexcept nogil

cdef uint8_t *put_head_with_id(
    uint8_t *p, int32_t correlation_id, int32_t session_id, const uint8_t *topic_id, int32_t partition, int64_t high_watermark,
    int64_t last_stable_offset, int64_t log_start_offset, bint no_aborted_transactions, uint32_t size
) noexcept nogil
