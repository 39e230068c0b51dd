from libc.stdint cimport int64_t

cdef int64_t MAX_EPOCH

cpdef bint raises_epoch(int64_t client_version) except -1

cdef class TransactionMetadata:
    cdef public str transactional_id
    cdef public object partitions, pending_state, state
    cdef public int64_t client_version, last_producer_epoch, last_update_ms, next_producer_id, previous_producer_id, producer_epoch, producer_id
    cdef public int64_t start_ms, timeout_ms
    cdef public bint has_failed_epoch_fence

    cpdef object prepare_add_partitions(self, object added, int64_t now_ms, int64_t client_version)
    cpdef object prepare_abort_or_commit(self, object state, int64_t now_ms, int64_t client_version, int64_t next_producer_id=*)
    cpdef object prepare_complete(self, int64_t now_ms)
    cdef object _prepare(
        self, object state, int64_t producer_id, int64_t producer_epoch, int64_t last_producer_epoch, int64_t timeout_ms, object partitions,
        int64_t start_ms, int64_t now_ms, int64_t next_producer_id, int64_t client_version)
    cdef void _check_previous(self, object state) except *
    cpdef void complete_transition(self, object transit) except *
    cdef bint _may_become(self, object transit) except -1
    cdef bint _keeps_producer(self, object transit) except -1
    cpdef void remove_partitions(self, object partitions) except *
