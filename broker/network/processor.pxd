from libc.stdint cimport int64_t
from ottla.broker.network.handler cimport RequestHandler
from ottla.broker.network.request_channel cimport RequestChannel
from ottla.broker.quotas.throttle cimport Quotas
from ottla.protocol.cursors.fields cimport View

cdef int64_t MAX_UNSENT

cdef class Processor:
    cdef public object authorizer, buffers, clock_ns, loop, view, window
    cdef public RequestHandler handler
    cdef public Quotas quotas
    cdef public RequestChannel channel
    cdef public set connections
    cdef public bytearray buffer
    cdef public int64_t expired_connections, request_max_bytes
    cdef View data
    cdef object _offenders, _on_closed
    cdef list _unsent

    cpdef void send_soon(self, object connection) except *
