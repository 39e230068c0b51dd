cimport cython
from libc.stdint cimport int64_t

cdef class ReplicaProgress:
    cdef readonly int64_t broker_id
    cdef public int64_t last_fetch_leader_end_offset, log_end_offset, log_start_offset
    cdef public object idle
    cdef int64_t _last_caught_up_ms, _last_fetch_ms

    @cython.locals(caught_up_ms=int64_t, last_end_offset=int64_t)
    cpdef void on_fetch(self, int64_t fetch_offset, int64_t follower_start_offset, int64_t leader_end_offset, int64_t now_ms) except *
    cpdef void end_idle(self, int64_t last_fetch_ms) except *
