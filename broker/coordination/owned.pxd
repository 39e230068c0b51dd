from libc.stdint cimport int64_t
from ottla.large_table cimport Parts

cdef class OwnedPartition:
    cdef public int64_t index, leader_epoch, loaded_end_offset
    cdef public bint is_loading
    cdef public Parts states
    cdef list _before_served, _once_loaded
    cdef bint _has_failed

cdef class StatesByKey:
    cdef public str topic
    cdef public dict partitions
    cdef public bint is_active
    cdef public object on_other_topic
    cdef object _cluster, _image
    cdef dict _displaced
    cdef int64_t _configured_partitions, _partition_count, _stored_count

    cdef int64_t _count_partitions(self) except -1
    cpdef int64_t partition_for(self, str key) except -1
    cdef OwnedPartition _owner(self, str key)
    cpdef object get(self, str key)
    cpdef object served(self, str key)
    cpdef OwnedPartition owner_of(self, str key, object state)
