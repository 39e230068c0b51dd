from libc.stdint cimport int64_t
from ottla.broker.transactions.metadata cimport TransactionMetadata

cdef class Marked:
    cdef public TransactionMetadata txn
    cdef public object completion
    cdef public dict refusals
    cdef public bint is_commit

cdef class TransactionMarkers:
    cdef public tuple here
    cdef public int64_t requests, responses
    cdef object _begun, _cluster, _coordinator_epoch, _listener, _look_again, _looking, _on_written, _partitions_of, _senders
    cdef object _timing_wheel, _write_markers
    cdef dict _due, _pending, _unread, _unrouted
    cdef set _denied, _flushing

    cpdef void write(self, TransactionMetadata txn, bint is_commit, object completion) except *
    cpdef void _route(self, Marked marked, object partitions) except *
    cpdef void _route_part(self, Marked marked, object partitions) except *
    cdef void _queue(self, object broker_id, Marked marked, object partitions) except *
    cdef bint _is_pending(self, Marked marked) except -1
    cpdef void _on_marked_here(self, Marked marked, object partitions, object broker_id, object codes) except *
    cdef dict _take_due(self, object broker_id)
    cdef void _take(self, Marked marked, object partitions, object codes, object broker_id) except *
    cdef void _maybe_complete(self, Marked marked) except *
