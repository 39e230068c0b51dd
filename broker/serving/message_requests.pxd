from libc.stdint cimport int64_t
from ottla.broker.request.context cimport RequestContext
from ottla.broker.request.turns cimport Turns
from ottla.broker.serving.route cimport Route
cimport cython

cdef class MessageRequests:
    cdef object _loop, _services
    cdef public object _clock_ns
    cdef public Turns turns
    cdef dict _tasks
    cdef public int64_t large_bytes

    @cython.locals(context=RequestContext)
    cpdef object handle(self, object frame, int64_t offset, int64_t correlation_id, Route route, object connection)
    cdef RequestContext _context(self, Route route, int64_t correlation_id, object client_id, object connection)

cdef class _Running:
    cdef readonly object _began_ns, context, pending

    cpdef void end_work(self, object now_ns) except *

cdef class _Relay:
    cdef object _inner, _outer
