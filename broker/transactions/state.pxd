from libc.stdint cimport int64_t
from ottla.broker.transactions.metadata cimport TransactionMetadata

cpdef list on_add_partitions(TransactionMetadata txn, object waiter, object producer, object partitions, int64_t now_ms)
cpdef object verify(TransactionMetadata txn, object producer)
cdef object _check_producer(TransactionMetadata txn, object producer)
cpdef list on_end(TransactionMetadata txn, object waiter, object producer, bint is_commit, int64_t now_ms)
cpdef list on_stored(TransactionMetadata txn, object transit, object then, object error, int64_t now_ms)
cpdef list on_markers_written(object completion)
cdef object _markers(TransactionMetadata txn, int64_t now_ms)
