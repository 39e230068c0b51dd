cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.conversion cimport message_fields
from ottla.protocol.conversion.message_reader cimport MessageReader
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View

cdef int64_t CODEC_MASK, FROM_MESSAGE, MAX_INT32, NO_TIMESTAMP

@cython.final
cdef class UpConverter:
    cdef View _data
    cdef MessageReader _reader
    cdef int64_t _magic, _max_message_bytes, _timestamp
    cdef bint _is_wrapped, _keeps_offsets
    cdef readonly bytearray room
    cdef readonly Py_ssize_t size
    cdef readonly int64_t base_timestamp, count, first_null_key, first_offset, foreign, last_offset, max_timestamp, min_timestamp
    cdef readonly int64_t null_keys, untimed

    @cython.locals(reader=MessageReader)
    cpdef bint convert(self, int64_t limit) except -1
    @cython.locals(reader=MessageReader, is_foreign=bint)
    cdef bint _examine(self) except -1
    @cython.locals(reader=MessageReader)
    cdef void _refuse_codec(self) except *
    @cython.locals(reader=MessageReader, timestamp=int64_t, delta=int64_t, elapsed=int64_t)
    cdef void _convert_one(self) except *
    cdef void _note(self, int64_t offset, int64_t timestamp) except *
