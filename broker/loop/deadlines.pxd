cimport cython
from ottla.broker.loop.purgatory cimport DelayedOperation
from libc.stdint cimport int64_t

cdef class Deadlines:
    cdef object _clock, _queue, _wheel
    cdef int64_t _sweep_at, _timeout_ms
    cdef bint _is_armed

    @cython.locals(first=DelayedOperation)
    cpdef void add(self, DelayedOperation operation) except *
