from libc.stdint cimport int64_t

cdef dict _slices, _latest
cdef _Ready _READY

cdef class _Ready:
    pass

cdef class Slices:
    cdef object _clock_ns, _context, _paused
    cdef readonly object loop
    cdef readonly set tasks
    cdef int64_t _slice_ns, _until_ns
    cdef bint _is_armed, _is_begun

    cpdef bint is_in_slice(self) except -1
    cpdef bint is_over(self) except -1
    cdef void _arm(self) except *

cdef Slices _slices_here()
cpdef bint is_over() except -1
cpdef object pause()

cdef class Rest:
    cdef readonly object coroutine
    cdef public object waits_for

    cpdef object advance(self, object step, object value)
