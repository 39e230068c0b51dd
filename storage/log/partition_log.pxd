cimport cython
from libc.stdint cimport int64_t
from ottla.storage.producers.state cimport ProducerState
from ottla.storage.log.batch_reader cimport BatchReader
from ottla.storage.log.flushes cimport Flushes
from ottla.storage.log.reads cimport FetchSlice
from ottla.storage.segment.log_segments cimport LogSegments
from ottla.storage.segment.segment cimport Segment
from ottla.storage.validation.batch cimport check_fits_segment, judge
from ottla.storage.validation.replicated cimport judge_replicated
from ottla.storage.validation.rules cimport ValidationRules
from ottla.storage.validation.run cimport BatchRun

cdef int64_t CLIENT, CONTROL_MASK, CURRENT_MAGIC, MAX_RELATIVE_OFFSET, NEVER, NO_SEQUENCE, REPLICATION, SEQUENCES, TRANSACTIONAL_MASK

cdef class PartitionLog:
    cdef public ValidationRules rules
    cdef public object config, context, latest_epoch, leader_epochs, log_dir, producer_state, tier, topic_id, topic_partition
    cdef readonly object discards, files, rolls, truncations
    cdef readonly LogSegments segments
    cdef readonly BatchReader reader
    cdef readonly Flushes flushes
    cdef public int64_t high_watermark, log_end_offset, log_start_offset

    cpdef bint update_high_watermark(self, int64_t offset) except -1
    @cython.locals(segment=Segment, at=Py_ssize_t, written=Py_ssize_t, end=Py_ssize_t, next_offset=int64_t, last_offset=int64_t)
    cpdef void append(self, BatchRun run, int64_t leader_epoch, int64_t now_ms, int64_t origin) except *
    cdef Py_ssize_t _judge_led(self, BatchRun run, int64_t leader_epoch, int64_t now_ms, int64_t origin) except -1
    cdef Py_ssize_t _judge_messages(self, BatchRun run) except -1
    @cython.locals(state=ProducerState)
    cdef bint _is_duplicate(self, BatchRun run, int64_t first_offset, int64_t origin) except -1
    @cython.locals(end=Py_ssize_t, log_end_offset=int64_t)
    cdef Py_ssize_t _judge_replicated(self, BatchRun run, int64_t leader_epoch) except -1
    @cython.locals(has_markers=bint)
    cdef void _write(self, BatchRun run, Segment segment, Py_ssize_t start, Py_ssize_t end, int64_t next_offset) except *
    @cython.locals(state=ProducerState)
    cdef void _take_producer(self, BatchRun run, Segment segment) except *
    cpdef Segment roll(self, int64_t expected_next_offset=*)

    cpdef void check_offset(self, int64_t offset) except *
    cpdef FetchSlice read(self, int64_t offset, int64_t max_bytes, int64_t end_offset, bint min_one_batch, bint may_wait=*)
