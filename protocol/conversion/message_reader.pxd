cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.conversion cimport message_fields
from ottla.protocol.conversion.message_fields cimport Tables
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View

cdef int64_t CODEC_MASK, CURRENT_MAGIC, LAST_CODEC, LOG_OVERHEAD, MESSAGE_HEADER_BYTES, MIN_MESSAGE_BYTES, NO_TIMESTAMP, TIMESTAMP_BYTES
cdef int64_t UP_TO_MAGIC_BYTES

@cython.final
cdef class MessageReader:
    cdef View _data
    cdef Tables _tables
    cdef Py_ssize_t _last
    cdef bint _is_nested
    cdef readonly Py_ssize_t start, end, key_at, value_at
    cdef readonly int64_t offset, crc, magic, attributes, timestamp, key_size, value_size

    @cython.locals(data=View, at=Py_ssize_t, left=Py_ssize_t, size=int64_t, magic=int64_t)
    cpdef bint advance(self) except -1
    cpdef void check_size(self, int64_t most_bytes) except *
    cpdef bint checksum_is_right(self) except -1
    cpdef void check_checksum(self) except *
    cpdef int64_t codec(self) except -1
    @cython.locals(data=View, at=Py_ssize_t, end=Py_ssize_t, key_at=Py_ssize_t, value_at=Py_ssize_t, key_size=int64_t, value_size=int64_t)
    cpdef void read_fields(self) except *
