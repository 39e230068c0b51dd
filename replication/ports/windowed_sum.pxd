cimport cython
from libc.stdint cimport int64_t

cdef class Sample:
    cdef public int64_t last_ms, start_ms
    cdef public double value

cdef class WindowedSum:
    cdef readonly double total
    cdef readonly int64_t oldest_ms
    cdef object _older
    cdef int64_t _due_ms, _last_ms, _period_ms, _start_ms, _window_ms
    cdef double _value

    cpdef void add(self, double amount, int64_t now_ms) except *
    cpdef void pass_time(self, int64_t now_ms) except *
    @cython.locals(period_ms=int64_t, oldest_ms=int64_t, due_ms=int64_t, total=double, sample=Sample)
    cdef void _expire(self, int64_t now_ms) except *
