from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.request_reader cimport RequestReader
from ottla.protocol.cursors.response_writer cimport ResponseWriter

cdef int64_t NO_RECORDS, NOTHING, PARTITION
cdef int64_t FIRST_FLEXIBLE, FIRST_WITH_TRANSACTIONAL_ID, FIRST_WITH_CURRENT_LEADER

cdef class ProduceReader(RequestReader):
    cdef readonly bytes transactional_id
    cdef readonly int64_t acks, timeout_ms
    cdef readonly Py_ssize_t start, end
    cdef dict _named, _named_in_topic
    cdef set _superseded

cdef class ProduceAnswer(ResponseWriter):
    cdef bytes _behind_partition
    cdef Py_ssize_t _partition_bytes

    cpdef Py_ssize_t put(self, int64_t index, int64_t error_code, int64_t base_offset, int64_t log_append_time_ms, int64_t log_start_offset) except -1
    cpdef Py_ssize_t put_failed(
        self, int64_t index, int64_t error_code, int64_t base_offset, int64_t log_append_time_ms, int64_t log_start_offset,
        object record_errors, object error_message, int64_t leader_id, int64_t leader_epoch) except -1
    cpdef Py_ssize_t put_later(self, int64_t index) except -1
    cpdef void fill(
        self, Py_ssize_t place, int64_t error_code, int64_t base_offset, int64_t log_append_time_ms, int64_t log_start_offset,
        object record_errors, object error_message, int64_t leader_id, int64_t leader_epoch) except *
    cdef bytes _behind_failed(self, object record_errors, object error_message, int64_t leader_id, int64_t leader_epoch)
    cpdef void correct(self, Py_ssize_t place, int64_t error_code, int64_t base_offset) except *
    cpdef bytes finish(self, int64_t throttle_time_ms, object node_endpoints)
    cdef Py_ssize_t _begin_partition(
        self, int64_t index, int64_t error_code, int64_t base_offset, int64_t log_append_time_ms, int64_t log_start_offset) except -1
