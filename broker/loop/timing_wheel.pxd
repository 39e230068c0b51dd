cimport cython
from libc.stdint cimport int64_t

cdef class TimerTask:
    cdef TimingWheel _wheel
    cdef dict _bucket
    cdef public object callback
    cdef public int64_t deadline_ms

    cpdef void cancel(self) except *
    @cython.locals(deadline_ms=int64_t)
    cpdef bint postpone(self, double delay_ms) except -1
    cpdef void move_to(self, dict bucket) except *

cdef class _Level:
    cdef public int64_t tick_ms, interval_ms
    cdef public list buckets, due_ms

cdef class TimingWheel:
    cdef public object clock
    cdef public int64_t count
    cdef object _call_later, _armed
    cdef int64_t _size, _now_ms, _armed_ms
    cdef list _levels, _heap
    cdef bint _closed

    @cython.locals(task=TimerTask)
    cpdef TimerTask add(self, double delay_ms, object callback)
    @cython.locals(now_ms=int64_t)
    cpdef int64_t deadline_after(self, double delay_ms) except -1
    @cython.locals(deadline_ms=int64_t, now_ms=int64_t, tick_ms=int64_t, tick=int64_t, index=int64_t, level=_Level)
    cdef void _place(self, TimerTask task) except *
    cdef void _arm(self) except *
