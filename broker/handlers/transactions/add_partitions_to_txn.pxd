from libc.stdint cimport int64_t
from ottla.broker.request.context cimport DelayedAnswer

cdef class _Results:
    cdef list _codes, _transactions
    cdef int64_t _left, _version
    cdef DelayedAnswer _answer

    cpdef object answer(self)
    cpdef void put(self, int64_t place, object codes) except *
