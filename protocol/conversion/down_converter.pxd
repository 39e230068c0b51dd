cimport cython
from libc.stdint cimport int64_t
from protocol.cursors cimport fields
from protocol.cursors.fields cimport View

cdef int64_t LOG_OVERHEAD, MAX_DECOMPRESSED_BYTES, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK

cdef class DownConverter:
    cdef object _frame, _view
    cdef View _data
    cdef Py_ssize_t _at, _end
    cdef int64_t _attributes, _base_offset, _base_timestamp, _first_offset, _left, _log_append_time, _magic
    cdef bint _is_produced, _is_relative
    cdef readonly bytearray room
    cdef readonly Py_ssize_t size
    cdef readonly int64_t count, first_written, largest, last_written, max_timestamp, with_headers

    cpdef bint convert(self, int64_t limit) except -1
    @cython.locals(data=View, size=int64_t, elapsed=int64_t, delta=int64_t, key_size=int64_t, value_size=int64_t, at=Py_ssize_t, end=Py_ssize_t, key_at=Py_ssize_t, offset=int64_t, timestamp=int64_t)
    cdef void _convert_one(self) except *
    @cython.locals(data=View, room=bytearray, start=Py_ssize_t, at=Py_ssize_t, checksum=int64_t)
    cdef void _write(self, int64_t offset, int64_t timestamp, Py_ssize_t key_at, int64_t key_size, Py_ssize_t value_at, int64_t value_size) except *
