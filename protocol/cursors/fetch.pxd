from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.request_reader cimport RequestReader
from ottla.protocol.cursors.response_writer cimport ResponseWriter

cdef int64_t END, FORGOTTEN, PARTITION
cdef int64_t FIRST_WITH_MAX_BYTES, FIRST_WITH_ISOLATION_LEVEL, FIRST_WITH_LOG_START_OFFSET, FIRST_WITH_SESSION, FIRST_WITH_LEADER_EPOCH
cdef int64_t FIRST_WITH_RACK, FIRST_FLEXIBLE, FIRST_WITH_TOPIC_IDS, FIRST_WITH_REPLICA_STATE, FIRST_WITH_NODE_ENDPOINTS
cdef int64_t FIRST_WITH_DIRECTORY_ID, NO_EPOCH, NO_REPLICA, NO_OFFSET, UNLIMITED, UUID_BYTES
cdef bytes ZERO_UUID

cdef class FetchReader(RequestReader):
    cdef readonly bytes rack_id, cluster_id, replica_directory_id
    cdef readonly int64_t replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch
    cdef readonly int64_t current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes

    cdef Py_ssize_t _read_partition_tags(self, Py_ssize_t at) except -1
    cdef void _read_request_tags(self) except *

cdef class FetchAnswer(ResponseWriter):
    cdef Py_ssize_t _head_at, _numbers_bytes

    cpdef void put(
        self, int64_t index, int64_t error_code, int64_t high_watermark, int64_t last_stable_offset, int64_t log_start_offset,
        object aborted, int64_t preferred_read_replica, object records) except *
    cpdef void put_diverging(
        self, int64_t index, int64_t high_watermark, int64_t last_stable_offset, int64_t log_start_offset, object aborted,
        int64_t epoch, int64_t end_offset) except *
    cpdef void put_failed(
        self, int64_t index, int64_t error_code, object aborted, object records, int64_t leader_id, int64_t leader_epoch) except *
    cpdef list finish(self, int64_t throttle_time_ms, int64_t error_code, int64_t session_id, object node_endpoints)
    cdef void _begin_partition(
        self, int64_t index, int64_t error_code, int64_t high_watermark, int64_t last_stable_offset, int64_t log_start_offset) except *
    cdef void _put_aborted(self, object aborted) except *
    cdef void _put_preferred_read_replica(self, int64_t broker_id) except *
    cdef void _put_records(self, int64_t size, object records) except *
    cdef void _check(self, int64_t first_version, str what) except *
