cimport cython
from libc.stdint cimport int64_t
from ottla.broker.network.processor cimport Processor
from ottla.broker.network.request_channel cimport RequestChannel
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View

cdef int64_t FIRST_BYTES, FULL_WINDOW_BYTES, LARGE_WINDOW_BYTES, LARGEST_BYTES, LARGEST_KEPT, NS_PER_BYTE, SENDING_NS

cdef class FrameReader:
    cdef Processor _processor
    cdef object _owner
    cdef readonly object view
    cdef View data
    cdef readonly Py_ssize_t end, start
    cdef public object growing
    cdef bytearray _lent, _rest
    cdef Py_ssize_t _filled, _from
    cdef int64_t _grown, _since_ns, _taken

    @cython.locals(processor=Processor, channel=RequestChannel, is_narrow=bint)
    cpdef object buffer(self)
    cpdef bint receive(self, Py_ssize_t count) except -1
    @cython.locals(larger=bytearray)
    cdef bint _fill(self, bytearray rest) except -1
    cdef void _lend(self, bytearray memory, Py_ssize_t start) except *
    cpdef bint take_kept(self) except -1
    cpdef void on_handled(self) except *
    cpdef bint keep_head(self, Py_ssize_t start) except -1
    cdef void _on_kept(self) except *
    cdef bint _allocate(self, Py_ssize_t start, int64_t total) except -1
    cdef bint _take(self, int64_t size, Py_ssize_t start) except -1
    cdef void _begin_taking(self, int64_t size) except *
    cpdef bint is_late(self, int64_t now_ns) except -1
    cdef void _give_back(self) except *
    cpdef void keep_all(self, Py_ssize_t start) except *
    cpdef bint keeps_frame(self) except -1
    cpdef bint holds_frame(self, Py_ssize_t start) except -1
