from libc.stdint cimport int64_t

cdef int64_t _MASK, _SHIFT

cdef class Parts:
    cdef readonly list _parts

    cpdef object get(self, object key, object default=*)
    cdef dict _part(self, object key)
