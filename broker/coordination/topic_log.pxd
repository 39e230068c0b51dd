cimport cython
from libc.stdint cimport int64_t
from ottla.replication.leader.partition cimport Partition
from ottla.storage.validation.run cimport BatchRun

cdef bytes ATTRIBUTES_AND_TIME, _NO_HEADERS, _NULL
cdef int64_t _KNOWN_VARINTS
cdef list VARINTS

cpdef bytes encode_pairs(object pairs)
cpdef void add_pair(int64_t delta, bytes key, bytes value, list parts) except *

cdef class TopicLog:
    cdef object _clock, _purgatory, _replica_manager
    cdef dict _refused
    cdef int64_t _codec, _required_acks, _timeout_ms
    cdef str _topic

    @cython.locals(run=BatchRun, partition=Partition, now_ms=int64_t, codec=int64_t)
    cdef tuple _append(
        self, int64_t index, object records, int64_t count, int64_t required_acks, int64_t producer_id, int64_t producer_epoch,
        int64_t base_sequence, object guard)
