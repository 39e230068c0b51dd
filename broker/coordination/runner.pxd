from libc.stdint cimport int64_t

cdef class Runner:
    cdef object _machines, _timing_wheel
    cdef dict _behind
    cdef bint _scheduled

    cpdef void run(self, object subject, object effects) except *
    cdef int64_t _most_concerned(self, object effects) except -1
    cdef void _carry_out_one(self, object subject, object queue) except *
    cdef void _carry_out(self, object subject, object effect) except *
    cpdef void arm(self, object subject, object key, int64_t delay_ms) except *
    cdef void _arm(self, object subject, object key, int64_t delay_ms) except *
