cimport cython
from libc.stdint cimport int64_t
from ottla.replication.ports.windowed_sum cimport WindowedSum

cdef class Rate:
    cdef WindowedSum _sum
    cdef int64_t _full_windows, _full_windows_ms, _window_ms

    cpdef void add(self, double amount, int64_t now_ms) except *
    cpdef double per_second(self, int64_t now_ms) except? -1
    @cython.locals(elapsed_ms=int64_t)
    cdef int64_t _elapsed_ms(self, int64_t now_ms) except -1

cdef class Sensor(Rate):
    cdef readonly object tags
    cdef public double bound
    cdef readonly int64_t last_ms
    cdef readonly Average throttle_time
    cdef object _max_throttle_ms

    @cython.locals(counted=WindowedSum, elapsed_ms=int64_t, rate=double)
    cpdef int64_t record(self, double amount, int64_t now_ms) except -1
    cdef int64_t _throttle_time_ms(self, double rate, int64_t elapsed_ms) except -1
    cpdef double most_at_once(self) except? -1

cdef class Average:
    cdef WindowedSum _count, _sum

    cpdef void add(self, double value, int64_t now_ms) except *
    cpdef double average(self, int64_t now_ms) except? -1
