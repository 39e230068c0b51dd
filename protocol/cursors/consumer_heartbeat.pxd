from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View
cimport cython

cdef tuple _SAME
cdef int64_t _LONGEST, _FIXED_BYTES

cdef class PlainHeartbeat:
    cdef View _data
    cdef Py_ssize_t _at
    cdef readonly bytes group_id, member_id, instance_id
    cdef readonly int64_t epoch
    cdef readonly bint is_plain

    @cython.locals(group_id=bytes, member_id=bytes, rest=bytes)
    cdef bint _read(self, int64_t version) except -1
    @cython.locals(size=int64_t, at=Py_ssize_t, found=bytes)
    cdef bytes _string(self)

@cython.locals(known=bytes, room=bytearray, at=Py_ssize_t)
cpdef bytes plain_answer(int64_t correlation_id, int64_t throttle_time_ms, int64_t error_code, bytes member_id, int64_t epoch, int64_t interval_ms)
