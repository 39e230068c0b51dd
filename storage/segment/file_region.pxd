cimport cython
from libc.stdint cimport int64_t

@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class FileRegion:
    cdef readonly object file
    cdef readonly int64_t position, length
    cdef readonly bint end_is_cached
    cdef readonly object begun

    cpdef bint holds_all(self) except -1
