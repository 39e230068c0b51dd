from libc.stdint cimport int64_t
from ottla.broker.request.context cimport DelayedAnswer
from ottla.broker.request.context cimport RequestContext

cpdef object handle_end_txn(object request, RequestContext context)
cpdef void _complete(DelayedAnswer answer, int64_t version, object error) except *
