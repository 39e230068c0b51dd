from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View

cdef int64_t END, FORGOTTEN, NOTHING, PARTITION, MAX_ELEMENTS, UUID_BYTES

cdef class RequestReader:
    cdef readonly object frame
    cdef View data
    cdef readonly bytes topic
    cdef readonly int64_t index, version, partitions_left, topics_left
    cdef readonly Py_ssize_t at, size
    cdef readonly bint is_flexible, is_verified
    cdef bint _is_in_topic
    cdef int64_t _allowed, _first_topics, _section
    cdef Py_ssize_t _first_at

    cdef void _begin(self, object frame, Py_ssize_t offset, int64_t version, bint is_flexible) except *
    cpdef bint verify(self, int64_t limit) except -1
    cpdef int64_t advance(self) except -2
    cpdef void detach(self) except *

    cdef void _read_head(self) except *
    cdef void _read_topic(self) except *
    cdef int64_t _read_partition(self) except -2
    cdef int64_t _read_forgotten(self) except -2
    cdef int64_t _end_section(self) except -2

    cpdef void begin_again(self) noexcept
    cdef int64_t _count(self) except -1
    cdef bytes _nullable_string(self)
    cdef bytes _string(self)
    cdef bytes _topic_id(self)
    cdef Py_ssize_t _skip_tagged_fields(self, Py_ssize_t at) except -1
    cdef (int64_t, Py_ssize_t, Py_ssize_t) _begin_tagged_field(self, Py_ssize_t at) except *
    cdef object _cut_off(self, object error)
