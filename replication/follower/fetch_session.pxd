cimport cython
from libc.stdint cimport int64_t

cdef int64_t INITIAL_EPOCH, MAX_EPOCH, NO_SESSION, UNKNOWN_LAG
cdef int64_t FIRST_FETCH_WITH_TOPIC_IDS, LAST_FETCH_WITH_TOPIC_NAMES

cdef class FollowedPartition:
    cdef public object asked, partition, topic_partition
    cdef public bytes topic_id
    cdef public double delayed_until
    cdef public int64_t lag, last_error, last_fetched_epoch, leader_epoch, offset, requested_offset, retries
    cdef public bint is_active, is_held, is_touched, is_truncating, is_wanted

cdef class Found:
    cdef readonly object records
    cdef readonly int64_t high_watermark, log_start_offset

cdef class FetchSessionHandler:
    cdef readonly object request
    cdef public int64_t epoch, session_id
    cdef public bint is_full, uses_topic_ids
    cdef readonly dict wanted
    cdef dict _forgotten, _order
    cdef list _touched
    cdef set _nameless
    cdef int64_t _failures, _version

    @cython.locals(of_topic=dict, old=FollowedPartition)
    cdef void _add(self, FollowedPartition followed) except *
    cpdef void add(self, FollowedPartition followed) except *
    cpdef void remove(self, FollowedPartition followed) except *
    cpdef void touch(self, FollowedPartition followed) except *
    cpdef void serve_last(self, FollowedPartition followed) except *
    cdef object _key(self, FollowedPartition followed)
    @cython.locals(followed=FollowedPartition, partitions=list, topics=list)
    cpdef object prepare(self)
    cdef list _take_forgotten(self)
    @cython.locals(followed=FollowedPartition)
    cdef void _choose_naming(self) except *
    cpdef bint on_answer(self, int64_t error_code, int64_t session_id) except -1
    cpdef void on_failure(self) except *
    cdef void _begin_anew(self) noexcept
