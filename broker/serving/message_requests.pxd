from libc.stdint cimport int64_t
from ottla.broker.request.context cimport RequestContext
from ottla.broker.request.running cimport RunningRequests
from ottla.broker.serving.route cimport Route
cimport cython

cdef class MessageRequests:
    cdef object _oversized
    cdef object _services
    cdef RunningRequests _running
    cdef public int64_t large_bytes

    @cython.locals(context=RequestContext)
    cpdef object handle(self, object frame, int64_t offset, int64_t correlation_id, Route route, object connection)
    cdef RequestContext _context(self, Route route, int64_t correlation_id, object client_id, object connection)
