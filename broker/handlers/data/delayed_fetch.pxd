cimport cython
from ottla.broker.handlers.data.fetch_reading cimport Fetch
from ottla.broker.loop.purgatory cimport DelayedOperation
from ottla.broker.network.request_channel cimport Pending
from libc.stdint cimport int64_t

cdef int64_t ANSWERED, CONVERTING, GATHERING, PARTITIONS_PER_STEP, QUOTA_LOOK_MS, WAITING

cdef class DelayedFetch(DelayedOperation):
    cdef Fetch _fetch
    cdef Pending _pending
    cdef object _task
    cdef int64_t _turns
    cdef bint _has_left, _is_parked, _is_running, _looks_for_quota

    cpdef void go_on(self) except *
    cpdef void read_cold(self, object cold) except *
    @cython.locals(fetch=Fetch)
    cdef void _follow_up(self) except *
    cdef void _look(self, bint answers_anyway=*) except *
    cpdef bint try_complete(self) except -1
    cpdef void on_enough(self) except *
    cdef void _gather(self, bint has_moved=*) except *
    @cython.locals(fetch=Fetch)
    cpdef void _on_turn(self) except *
    @cython.locals(fetch=Fetch)
    cdef void _maybe_wait_for_quota(self) except *
    cpdef void on_given_up(self) except *
    cpdef void on_expiration(self) except *
    cpdef void on_complete(self) except *
    cpdef void cancel(self) except *
    cdef void _complete(self, object answer) except *
    cdef void _on_error(self, object error) except *
    cdef void _fail(self) except *

@cython.locals(delayed=DelayedFetch)
cpdef Pending go_on(Fetch fetch, object cold)
