from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.request_reader cimport RequestReader

cdef int64_t FIRST_FLEXIBLE, FIRST_WITH_ISOLATION_LEVEL, FIRST_WITH_LOG_START_OFFSET, FIRST_WITH_RACK, FIRST_WITH_SESSION
cdef int64_t FIRST_WITH_TOPIC_IDS, NO_EPOCH, NO_OFFSET, NO_REPLICA, PARTITION, UUID_BYTES

cdef class FetchAnswerReader(RequestReader):
    cdef readonly int64_t throttle_time_ms, error_code, session_id, partition_error_code
    cdef readonly int64_t high_watermark, last_stable_offset, log_start_offset, preferred_read_replica
    cdef readonly int64_t diverging_epoch, diverging_end_offset
    cdef readonly Py_ssize_t start, end

    cpdef object records(self)
    cdef Py_ssize_t _skip_aborted(self, Py_ssize_t at) except -1
    cdef Py_ssize_t _read_records(self, Py_ssize_t at) except -1
    cdef Py_ssize_t _read_partition_tags(self, Py_ssize_t at) except -1
