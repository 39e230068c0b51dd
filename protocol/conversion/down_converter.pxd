cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.conversion cimport message_fields
from ottla.protocol.conversion.message_fields cimport Tables
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View
from ottla.protocol.records cimport record_step

cdef int64_t MAX_DECOMPRESSED_BYTES, MIN_RECORD_BYTES, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK

@cython.final
cdef class DownConverter:
    cdef View _data
    cdef Tables _tables
    cdef Py_ssize_t _at, _end
    cdef int64_t _attributes, _base_offset, _base_timestamp, _first_offset, _left, _log_append_time
    cdef bint _is_produced, _is_relative
    cdef readonly bytearray room
    cdef readonly Py_ssize_t size
    cdef readonly int64_t count, first_written, largest, last_written, magic, max_timestamp, total, with_headers

    cpdef void begin(self, object records, Py_ssize_t start, Py_ssize_t end, object header, int64_t first_offset, bint is_wrapped) except *
    cpdef bint convert(self, int64_t limit) except -1
    cpdef void copy(self, object frame, Py_ssize_t start, Py_ssize_t end) except *
    cpdef void replace(self, Py_ssize_t start, bytes message) except *
    @cython.locals(room=bytearray)
    cdef void _make_room(self, Py_ssize_t size) except *
    @cython.locals(data=View, end=Py_ssize_t, elapsed=int64_t, delta=int64_t, key_at=Py_ssize_t, key_size=int64_t, value_at=Py_ssize_t, value_size=int64_t, headers=int64_t, offset=int64_t, timestamp=int64_t, start=Py_ssize_t)
    cdef void _convert_one(self) except *
