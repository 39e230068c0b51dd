from libc.stdint cimport int64_t
from ottla.broker.network.handler cimport RequestHandler
from ottla.broker.security.client cimport Client
from ottla.broker.serving.route cimport Route
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View
cimport cython

cdef class Dispatcher(RequestHandler):
    cdef readonly dict _routes
    cdef readonly object messages
    cdef object _metrics, _refused_protocols, _services

    @cython.locals(data=View, route=Route, client=Client, kind=int64_t, correlation_id=int64_t, client_id_length=int64_t, offset=Py_ssize_t, count=int64_t)
    cpdef object handle(self, object frame, object connection)
