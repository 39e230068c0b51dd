cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.records cimport record_step
from ottla.protocol.records.record_step cimport Bytes

cdef int64_t BATCH_COUNT, INCOMPLETE, NO_TIMESTAMP

@cython.final
cdef class RecordCheck:
    cdef int64_t _base_timestamp, _size
    cdef readonly int64_t count, earliest, index, latest, missing
    cdef readonly bint has_null_key, offsets_are_consecutive

    cpdef void begin(self, int64_t count, int64_t base_timestamp) except *
    @cython.locals(index=int64_t, stop=int64_t, latest=int64_t, earliest=int64_t, after=Py_ssize_t, elapsed=int64_t, delta=int64_t, key_size=int64_t, timestamp=int64_t)
    cpdef Py_ssize_t take(self, Bytes data, Py_ssize_t at, Py_ssize_t end, int64_t most) except -1

@cython.final
cdef class RecordWalk:
    cdef readonly bytes data
    cdef Bytes _data
    cdef int64_t _left
    cdef Py_ssize_t _headers_at
    cdef readonly Py_ssize_t body_at, delta_at, end, key_at, start, value_at
    cdef readonly int64_t delta, elapsed, headers, key_size, value_size

    @cython.locals(start=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, elapsed=int64_t, delta=int64_t, delta_at=Py_ssize_t, body_at=Py_ssize_t, key_at=Py_ssize_t, key_size=int64_t, value_at=Py_ssize_t, value_size=int64_t, headers=int64_t, at=Py_ssize_t)
    cpdef bint advance(self) except -1
    cpdef bytes key(self)
    cpdef bytes value(self)
    @cython.locals(at=Py_ssize_t, key_at=Py_ssize_t, key_size=int64_t, value_at=Py_ssize_t, value_size=int64_t)
    cpdef tuple read_headers(self)
    @cython.locals(at=Py_ssize_t, key_at=Py_ssize_t, key_size=int64_t)
    cpdef bytes joined_header_keys(self)
