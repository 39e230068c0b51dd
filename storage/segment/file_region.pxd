from libc.stdint cimport int64_t

cdef class FileRegion:
    cdef readonly object file
    cdef readonly int64_t position, length
    cdef readonly bint end_is_cached
    cdef readonly bytes begun
