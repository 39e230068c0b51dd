from ottla.broker.network.request_channel cimport Pending
from ottla.broker.request.context cimport RequestContext

cdef class DelayedAnswer:
    cdef RequestContext _context
    cdef Pending _pending
    cdef object _response

    cpdef void complete(self, object response) except *
    cpdef object answer(self)
