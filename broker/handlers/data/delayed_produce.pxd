from libc.stdint cimport int64_t
from replication.leader.partition cimport Partition

cdef int64_t ACKS_ALL, FLUSH_TIMEOUT_MS, KAFKA_STORAGE_ERROR, NONE, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT
cdef int64_t UNDECIDED

cdef class AppendedPartition:
    cdef public Partition partition
    cdef public int64_t base_offset, end_offset, error_code
    cdef public Py_ssize_t place
    cdef public bint completed
    cdef public object produce

    cpdef bint try_complete(self) except -1

cpdef int64_t outcome(Partition partition, int64_t end_offset, int64_t acks) except -3
