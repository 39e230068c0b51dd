from libc.stdint cimport int64_t
from broker.handlers.delayed_answer cimport DelayedAnswer
from broker.request.context cimport RequestContext

cpdef object handle_end_txn(object request, RequestContext context)
cpdef void _complete(DelayedAnswer answer, int64_t version, object error) except *
