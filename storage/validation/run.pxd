from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.protocol.cursors.fields cimport View
from ottla.protocol.records.walk cimport RecordCheck

cdef int64_t ATTRIBUTES_OFFSET, CURRENT_MAGIC, HEADER_SIZE, KNOWN_ATTRIBUTES, LOG_OVERHEAD, MAGIC_OFFSET, MIN_BATCH_SIZE, NO_PRODUCER_ID, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK

cdef class BatchRun:
    cdef readonly object frame
    cdef View data
    cdef readonly RecordCheck check
    cdef public Py_ssize_t start, end, at
    cdef public int64_t size
    cdef public int64_t base_offset, batch_length, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp
    cdef public int64_t producer_id, producer_epoch, base_sequence, count
    cdef public int64_t new_max_timestamp, records_checked, work
    cdef public bint is_accepted, needs_worker, needs_recompression, takes_log_append_time, forgets_epochs, is_duplicate, is_message_set, has_producers, raises_epoch
    cdef public int64_t first_offset, last_offset, log_append_time_ms, log_start_offset
    cdef public list epochs
    cdef public dict pieces
    cdef public object conversion, guard, marker

    cpdef void point_at(self, Py_ssize_t start, Py_ssize_t end) noexcept
    cpdef void read(self, Py_ssize_t at) except *
    cpdef void read_unit(self, Py_ssize_t at) except *
    cpdef void take_messages(self, int64_t magic) except *
    cpdef bint read_next(self, Py_ssize_t at) except -1
    cdef void _read_message(self, Py_ssize_t at) except *
    cpdef bint crc_is_valid(self) except -1
    cpdef void has_epoch(self, int64_t leader_epoch) except *
    cpdef object header(self)
    cpdef object batch(self)
    cpdef void accept(self, int64_t max_timestamp) noexcept
    cpdef void stamp(self, int64_t base_offset, int64_t leader_epoch) except *
    cpdef BatchRun detached(self)
