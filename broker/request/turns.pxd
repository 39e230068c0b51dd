from libc.stdint cimport int64_t

cdef class Turns:
    cdef object _begun, _call_soon, _clock_ns, _while_large
    cdef readonly object _place
    cdef list _postponed, _waiting
    cdef dict _handed_on
    cdef int64_t _count, _pause_ns
    cdef public int64_t _slice_ns
    cdef bint _armed

    cpdef object first_slice(self, object steps)
