cimport cython
from libc.stdint cimport int64_t
from protocol.cursors cimport fields
from protocol.cursors.fields cimport View

cdef int64_t CODEC_MASK, CURRENT_MAGIC, FROM_MESSAGE, LAST_CODEC, LOG_OVERHEAD, MAX_INT32, MESSAGE_HEADER_BYTES, MIN_MESSAGE_BYTES, NO_TIMESTAMP
cdef int64_t TIMESTAMP_BYTES, UP_TO_MAGIC_BYTES

cdef class UpConverter:
    cdef object _frame
    cdef View _data
    cdef Py_ssize_t _at, _end
    cdef int64_t _magic, _max_message_bytes, _timestamp
    cdef bint _is_wrapped, _keeps_offsets
    cdef readonly bytearray room
    cdef readonly Py_ssize_t size
    cdef readonly int64_t base_timestamp, count, first_null_key, first_offset, foreign, last_offset, max_timestamp, min_timestamp
    cdef readonly int64_t null_keys, untimed

    @cython.locals(data=View, at=Py_ssize_t, left=Py_ssize_t, size=int64_t, magic=int64_t)
    cpdef bint convert(self, int64_t limit) except -1
    @cython.locals(data=View, codec=int64_t, timestamp=int64_t, key_at=Py_ssize_t, key_end=Py_ssize_t, key_size=int64_t, value_size=int64_t, value_at=Py_ssize_t, value_end=Py_ssize_t, delta=int64_t, elapsed=int64_t, room=bytearray, to=Py_ssize_t, size=Py_ssize_t)
    cdef void _convert_one(self, int64_t offset, Py_ssize_t at, Py_ssize_t end, int64_t magic) except *
    @cython.locals(data=View, size=int64_t)
    cdef void _check_sizes(self, Py_ssize_t at, Py_ssize_t end, int64_t magic) except *
    cdef void _refuse(self, int64_t codec) except *
    cdef void _note(self, int64_t offset, int64_t timestamp) except *
