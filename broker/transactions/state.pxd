from libc.stdint cimport int64_t
from ottla.broker.transactions.metadata cimport TransactionMetadata

cdef int64_t MAX_EPOCH

cpdef list on_add_partitions(
    TransactionMetadata txn, object waiter, object producer, object partitions, int64_t client_version, int64_t now_ms)
cpdef bint must_wait(TransactionMetadata txn, object producer, int64_t client_version) except -1
cpdef object verify(TransactionMetadata txn, object producer)
cdef object _check_producer(TransactionMetadata txn, object producer)
cdef object _check_when_settled(TransactionMetadata txn, object producer, int64_t client_version)
cpdef list on_end(
    TransactionMetadata txn, object waiter, object producer, bint is_commit, int64_t client_version, object new_producer_id, int64_t now_ms)
cdef bint _is_repeated_end(TransactionMetadata txn, object producer) except -1
cdef tuple _prepare_end(TransactionMetadata txn, object state, int64_t client_version, object new_producer_id, int64_t now_ms)
cpdef list on_stored(TransactionMetadata txn, object transit, object then, object error, int64_t now_ms)
cpdef list on_markers_written(object completion)
cdef object _markers(TransactionMetadata txn, int64_t now_ms)
