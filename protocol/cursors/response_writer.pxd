from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields

cdef int64_t _ROOM_BYTES

cdef class ResponseWriter:
    cdef readonly int64_t version
    cdef readonly bint is_flexible
    cdef bint _has_topic_ids, _is_in_order
    cdef bytearray _room
    cdef list _inserted
    cdef bytes _opened, _topic
    cdef int64_t _count, _topics
    cdef Py_ssize_t _at, _count_at, _topics_at

    cdef void _begin(self, int64_t version, int64_t correlation_id, bint is_flexible, bint has_topic_ids) except *
    cpdef void begin_topic(self, bytes topic) except *
    cdef void _begin_topics(self) noexcept
    cdef void _begin_element(self, Py_ssize_t size) except *
    cdef void _open_topic(self) except *
    cdef void _close_topic(self) except *
    cdef void _end_topics(self) except *
    cdef void _set_count(self, Py_ssize_t at, int64_t count) except *
    cdef void _put_count(self, int64_t count) except *
    cdef void _put(self, bytes value) except *
    cdef void _insert(self, Py_ssize_t at, object value) except *
    cdef void _make_room(self, Py_ssize_t size) except *
    cdef list _pieces(self)
    cdef bytes _joined(self)
