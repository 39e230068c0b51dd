cimport cython
from libc.stdint cimport int64_t

cdef class RealFile:
    cdef public object path
    cdef readonly int descriptor
    cdef int64_t _position

    cpdef void write(self, object data) except *
    @cython.locals(written=Py_ssize_t)
    cpdef void pwrite(self, object data, int64_t at) except *
    @cython.locals(count=Py_ssize_t)
    cdef void _write_rest(self, object data, int64_t at, Py_ssize_t written) except *
    @cython.locals(data=bytes, missing=Py_ssize_t)
    cpdef bytes pread(self, Py_ssize_t length, int64_t at)
    cpdef bytes pread_cached(self, Py_ssize_t length, int64_t at)
    cpdef int fileno(self) except? -2
