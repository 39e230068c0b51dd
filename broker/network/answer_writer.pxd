from ottla.broker.network cimport gather
from ottla.broker.network.sendfile cimport FileSender

cdef long long UNCOPIED_BYTES

cdef class AnswerWriter:
    cdef public object sock, transport
    cdef public tuple timings
    cdef public list unsent
    cdef public bint is_sending
    cdef object _loop, _owner
    cdef FileSender _sender
    cdef bint _has_regions, _is_large

    cpdef Py_ssize_t gather(self, list parts, list out) except -1
    cpdef void send_unsent(self) except *
    cpdef void write(self, list out) except *
    cpdef bint pump(self) except -1
