from libc.stdint cimport int64_t
from replication.leader.partition cimport Partition

cdef int64_t ACKS_ALL, FLUSH_TIMEOUT_MS, NONE, REQUEST_TIMED_OUT

cdef class AppendedPartition:
    cdef public Partition partition
    cdef public int64_t base_offset, end_offset, error_code
    cdef public Py_ssize_t place
    cdef public bint completed
    cdef public object produce

    cpdef bint try_complete(self) except -1
