from libc.stdint cimport int64_t
from ottla.broker.network.request_channel cimport Pending

cdef class RequestContext:
    cdef readonly object access, broker, client, client_id, connection, offend
    cdef readonly int64_t api_key, api_version, correlation_id
    cdef public bint is_large
    cdef object _encode, _encode_in_slices, _mutations
    cdef bint _has_throttle_time, _is_exempt

    cpdef object encode(self, object response)
    cdef void _say_throttle_time(self, object response) except *

cdef class DelayedAnswer:
    cdef RequestContext _context
    cdef Pending _pending
    cdef object _response

    cpdef void complete(self, object response) except *
    cpdef object answer(self)
