cimport cython
from libc.stdint cimport int64_t

cdef int64_t BATCHES_RETAINED, MAX_EPOCH, MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, NONE, SEQUENCES

cdef class ProducerStateEntry:
    cdef public list batches
    cdef public int64_t coordinator_epoch, current_txn_first_offset, last_timestamp, producer_epoch, producer_id

    cpdef object batch_with_range(self, int64_t first_sequence, int64_t last_sequence)
    cpdef void move_to_epoch(self, int64_t producer_epoch) except *

cdef class ProducerState:
    cdef public object topic_partition, producers
    cdef public int64_t first_unstable_offset
    cdef public dict _ongoing, unreplicated, verifications

    @cython.locals(entry=ProducerStateEntry)
    cpdef bint has_open_transaction(self, int64_t producer_id, int64_t producer_epoch=*) except -1
    @cython.locals(entry=ProducerStateEntry)
    cpdef void check_epoch(self, int64_t producer_id, int64_t producer_epoch, int64_t first_offset) except *
    @cython.locals(entry=ProducerStateEntry, batches=list, epoch=int64_t)
    cpdef object check_append(
        self, int64_t producer_id, int64_t producer_epoch, int64_t first_sequence, int64_t last_sequence, bint is_transactional, int64_t first_offset)
    @cython.locals(entry=ProducerStateEntry)
    cpdef void check_coordinator_append(self, int64_t producer_id, int64_t producer_epoch, bint is_transactional, int64_t first_offset) except *
    @cython.locals(entry=ProducerStateEntry, epoch=int64_t)
    cpdef void check_marker(
        self, int64_t producer_id, int64_t producer_epoch, int64_t coordinator_epoch, int64_t offset, bint raises_epoch=*) except *
    @cython.locals(entry=ProducerStateEntry, batches=list)
    cpdef void on_append(
        self, int64_t producer_id, int64_t producer_epoch, int64_t last_sequence, int64_t first_offset, int64_t last_offset, int64_t timestamp,
        bint is_transactional) except *
    cpdef void on_high_watermark(self, int64_t high_watermark) except *
