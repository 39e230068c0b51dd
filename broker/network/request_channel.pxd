cimport cython
from libc.stdint cimport int64_t

cdef int64_t TURN_NS

cdef class Pending:
    cdef public object answer, connection, on_closed, timing
    cdef public RequestChannel channel
    cdef public bint appended, completed, in_turns, occupies_slot
    cdef public int64_t waiting_bytes

cdef class Request:
    cdef public object connection, frame
    cdef public Py_ssize_t size

cdef class RequestChannel:
    cdef public object frame_memory
    cdef public int64_t max_request_bytes, max_requests, queued_bytes, slots, slots_in_use, waiting_for_turn
    cdef public bint full, inline, is_spent
    cdef public int64_t turn_ends_ns
    cdef object _call_soon, _clock_ns, _queue
    cdef list _endings
    cdef readonly list woken
    cdef bint _turn_armed

    cpdef bint begin_turn(self, int64_t now_ns) except -1
    @cython.locals(now_ns=int64_t)
    cpdef bint turn_is_over(self) except -1
    cpdef void at_turn_end(self, object callback) except *
    cpdef void wake(self, object connection) except *
    cdef void _arm_turn(self) except *
    @cython.locals(endings=list)
    cpdef void _end_turn(self) except *
    @cython.locals(woken=list, connections=list, at=Py_ssize_t)
    cdef void _run_woken(self) except *
    cdef void _run_queued(self) except *
    cpdef void hold_slot(self, Pending pending) except *
    cpdef void release_slot(self) except *
    cpdef void hold_waiting(self, Pending pending) except *
    cpdef void submit(self, Request request) except *
    cpdef void withdraw(self, Request request) except *
    cdef void _update(self) except *
