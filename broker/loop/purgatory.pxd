from libc.stdint cimport int64_t

cdef class Purgatory

cdef class DelayedOperation:
    cdef public bint completed
    cdef public int64_t deadline_ms, watched
    cdef object _timer
    cdef Purgatory _purgatory

    cpdef bint try_complete(self) except -1
    cpdef void on_complete(self) except *
    cpdef void on_expiration(self) except *
    cpdef bint force_complete(self) except -1
    cpdef void cancel(self) except *
    cpdef void expire(self) except *
    cdef bint _finish(self) except -1

cdef class Purgatory:
    cdef readonly str name
    cdef public int64_t delayed, expirations, purge_interval, watched
    cdef object _timing_wheel
    cdef dict _deadlines
    cdef set _lists
    cdef int64_t _dead

    cpdef void wait(self, DelayedOperation operation, int64_t watched, double timeout_ms) except *
    cpdef void will_purge(self, object waiters) except *
    cdef void _expire_in(self, double timeout_ms, DelayedOperation operation) except *
    cdef void _on_finished(self, DelayedOperation operation) noexcept
    cpdef void purge(self) except *
