cimport cython
from libc.stdint cimport int64_t
from storage.producers.state cimport ProducerState
from storage.log.reads cimport FetchSlice
from storage.segment.batch_finder cimport BatchFinder
from storage.segment.log_settings cimport LogSettings
from storage.segment.segment cimport Segment
from storage.validation.batch cimport judge
from storage.validation.rules cimport ValidationRules
from storage.validation.run cimport BatchRun

cdef int64_t CHUNK_BYTES, CLIENT, CONTROL_MASK, CURRENT_MAGIC, HEADER_SIZE, INLINE_BYTES, LARGEST_OFFSET, MAX_RELATIVE_OFFSET, NEVER, NO_SEQUENCE, REPLICATION, SEQUENCES, TRANSACTIONAL_MASK

cdef class PartitionLog:
    cdef public Segment active_segment
    cdef public LogSettings settings
    cdef public ValidationRules rules
    cdef public object config, context, directory, latest_epoch, leader_epochs, log_dir, producer_state, segments, small_files
    cdef public object topic_id, topic_partition, truncation
    cdef public list discards, flushes, unfinished_rolls
    cdef public dict read_hints
    cdef public int64_t flush_due_offset, high_watermark, log_end_offset, log_start_offset, next_flush_offset, recovery_point
    cdef public bint is_closed

    cpdef void commit_all(self) except *
    cpdef bint update_high_watermark(self, int64_t offset) except -1
    @cython.locals(segment=Segment, at=Py_ssize_t, written=Py_ssize_t, end=Py_ssize_t, next_offset=int64_t, last_offset=int64_t)
    cpdef void append(self, BatchRun run, int64_t leader_epoch, int64_t now_ms, int64_t origin) except *
    cdef Py_ssize_t _judge_led(self, BatchRun run, int64_t leader_epoch, int64_t now_ms, int64_t origin) except -1
    cdef Py_ssize_t _judge_messages(self, BatchRun run) except -1
    @cython.locals(state=ProducerState)
    cdef bint _is_duplicate(self, BatchRun run, int64_t first_offset, int64_t origin) except -1
    @cython.locals(at=Py_ssize_t, last_offset=int64_t)
    cdef Py_ssize_t _judge_replicated(self, BatchRun run, int64_t leader_epoch) except -1
    cdef void _write(self, BatchRun run, Segment segment, Py_ssize_t start, Py_ssize_t end, int64_t next_offset) except *
    @cython.locals(state=ProducerState)
    cdef void _take_producer(self, BatchRun run, Segment segment) except *
    cpdef Segment roll(self, int64_t expected_next_offset=*)

    cpdef FetchSlice read(self, int64_t offset, int64_t max_bytes, int64_t end_offset, bint min_one_batch, bint may_wait=*)
    @cython.locals(finder=BatchFinder, segment=Segment, higher=Segment, position=int64_t, next_offset=int64_t, limit=int64_t, length=int64_t)
    cdef FetchSlice _find_batches(self, int64_t offset, int64_t max_bytes, int64_t end_offset, bint min_one_batch, bint may_wait)
    cpdef object file_of(self, Segment segment, bint may_wait)
    @cython.locals(segment=Segment, finder=BatchFinder)
    cdef BatchFinder _locate(self, int64_t offset, int64_t ahead, bint may_wait)
    @cython.locals(finder=BatchFinder)
    cdef int64_t _position_of(self, Segment segment, int64_t end_offset, bint may_wait) except -1
    cdef void _remember(self, int64_t offset, Segment segment, int64_t position) except *
