from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.request_reader cimport RequestReader
from ottla.protocol.cursors.response_writer cimport ResponseWriter

cdef int64_t PARTITION
cdef int64_t FIRST_WITH_MEMBER, FIRST_WITH_RETENTION, FIRST_WITH_THROTTLE_TIME, FIRST_WITHOUT_RETENTION, FIRST_WITH_LEADER_EPOCH
cdef int64_t FIRST_WITH_INSTANCE_ID, FIRST_FLEXIBLE, FIRST_WITH_TOPIC_IDS, UNSET, FIRST_TXN_WITH_MEMBER

cdef class OffsetCommitReader(RequestReader):
    cdef readonly bytes group_id, member_id, group_instance_id, committed_metadata, transactional_id
    cdef readonly int64_t generation_id, retention_time_ms, committed_offset, committed_leader_epoch, commit_timestamp
    cdef readonly int64_t layout, producer_id, producer_epoch

cdef class TxnOffsetCommitReader(OffsetCommitReader):
    pass

cdef class OffsetCommitAnswer(ResponseWriter):
    cdef Py_ssize_t _throttle_at, _partition_bytes

    cpdef void name_topic(self, bytes topic) except *
    cpdef void put(self, int64_t index, int64_t error_code) except *
    cpdef bytes finish(self, int64_t throttle_time_ms)
