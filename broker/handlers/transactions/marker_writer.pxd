from libc.stdint cimport int64_t

cdef class MarkerWriter:
    cdef object _services
    cdef int64_t _timeout_ms

    cpdef void _on_decided(self, object marker, dict codes, object then, object decided) except *
