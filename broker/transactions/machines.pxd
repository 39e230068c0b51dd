from libc.stdint cimport int64_t
from ottla.broker.coordination.owned cimport OwnedPartition, StatesByKey
from ottla.broker.coordination.runner cimport Runner
from ottla.broker.transactions.metadata cimport TransactionMetadata
cimport cython

cdef class TransactionMachines:
    cdef object _clock, _level, _log, _timing_wheel
    cdef readonly StatesByKey _owned
    cdef public object between, markers, stats
    cdef public Runner runner
    cdef public int64_t log_append_retry_queue_size

    cpdef void carry_out(self, TransactionMetadata subject, object effect) except *
    cpdef void on_markers_written(self, TransactionMetadata txn, object completion) except *
    cpdef void _store(self, TransactionMetadata txn, object store) except *
    @cython.locals(owned=OwnedPartition)
    cpdef void _append(self, TransactionMetadata txn, object store, bytes value) except *
    cpdef void _on_stored(self, TransactionMetadata txn, object store, object error, int64_t _) except *
    @cython.locals(owned=OwnedPartition)
    cpdef object coordinator_epoch(self, TransactionMetadata txn)
    cdef bint _coordinates(self, TransactionMetadata txn) except -1
