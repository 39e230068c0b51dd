from ottla.broker.network.request_channel cimport Pending
from ottla.pauses cimport Rest
from libc.stdint cimport int64_t

cdef class RunningRequests:
    cdef object _loop
    cdef set _tasks
    cdef public object clock_ns, large
    cdef public _Running current

    cpdef object begin(self, object work, Pending pending=*, bint holds_slot=*)
    cdef Pending _go_on(self, _Running running)

cdef class _Running(Rest):
    cdef RunningRequests _requests
    cdef bint _holds_slot
    cdef public int64_t since_ns
    cdef public object task
    cdef public Pending pending
    cdef public bint is_idle

    cpdef object advance(self, object step, object value)
    cpdef void hold(self) except *
    cpdef void release(self) except *

cdef class _Relay:
    cdef object _inner, _outer

cpdef void settle(Pending pending, object answer) except *
