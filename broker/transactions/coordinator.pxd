from ottla.broker.coordination.owned cimport StatesByKey
from ottla.broker.transactions.metadata cimport TransactionMetadata

cdef class TransactionCoordinator:
    cdef readonly StatesByKey transactions
    cdef readonly object machines
    cdef readonly object markers
    cdef object _clock, _config, _elections, _expiration, _level, _log, _new_producer_id

    cdef tuple _find(self, str transactional_id)
    cdef void _add(self, TransactionMetadata txn, object producer, object partitions, object client_version, object reply) except *
