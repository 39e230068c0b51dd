cimport cython
from libc.stdint cimport int64_t
from ottla.broker.fetching.fetch_session cimport FetchSession, SessionPartition
from ottla.protocol.cursors.fetch cimport FetchAnswer
from ottla.replication.leader.partition cimport Partition
from ottla.replication.ports.topic_stats cimport TopicStats
from ottla.replication.reading.fetch_read cimport FetchParams
from ottla.storage.segment.file_region cimport FileRegion

cdef int64_t FENCED, FETCH_ERRORS, FIRST_WITH_DIVERGING_EPOCHS, FIRST_WITH_LEADER_HINTS, MOVED, NO_EPOCH, NO_ERROR
cdef int64_t NO_OFFSET, NO_PREFERENCE, NOT_LEADER, UNSUPPORTED_VERSION

cdef class FetchWriter:
    cdef public int64_t error_code, throttle_time_ms
    cdef public bint is_incremental
    cdef public dict converted
    cdef FetchAnswer _answer
    cdef FetchSession _session
    cdef FetchParams _params
    cdef object _services
    cdef dict _error_counts
    cdef set _leader_ids
    cdef int64_t _correlation_id, _sound, _version
    cdef bint _is_untellable

    @cython.locals(region=FileRegion, answer=FetchAnswer)
    cpdef void write_one(self, SessionPartition asked) except *
    @cython.locals(partition=Partition, stats=TopicStats, replica_id=int64_t)
    cdef void _count(self, SessionPartition asked, int64_t size) except *
    @cython.locals(code=int64_t, leader_id=int64_t, leader_epoch=int64_t)
    cdef void _write_failure(self, SessionPartition asked) except *
    @cython.locals(key=int64_t)
    cdef void _count_error(self, int64_t code, int64_t times) except *
    @cython.locals(answer=FetchAnswer, asked=SessionPartition, code=int64_t)
    cpdef list finish(self, list named)
