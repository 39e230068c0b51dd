cimport cython
from libc.stdint cimport int64_t
from ottla.storage.segment.batch_finder cimport BatchFinder
from ottla.storage.segment.log_settings cimport LogSettings
from ottla.storage.segment.offset_index cimport OffsetIndex
from ottla.storage.segment.time_index cimport TimeIndex

cdef int64_t FIRST_BYTES, HEADER_SIZE, MAX_RELATIVE_OFFSET, NO_TIMESTAMP, UNKNOWN

cdef class Segment:
    cdef public object _directory, _file, _suffix, _transaction_index, filesystem
    cdef public LogSettings _settings
    cdef public OffsetIndex _offset_index
    cdef public TimeIndex _time_index
    cdef public tuple _entries_before, _time_entries_before
    cdef public int64_t _largest_timestamp, _offset_of_largest_timestamp, _staged_since_entry, _staged_timestamp, _staged_timestamp_offset
    cdef public int64_t base_offset, bytes_since_last_index_entry, created_ms, reserve_at, reserved_bytes, roll_jitter_ms
    cdef public int64_t rolling_based_timestamp, size, staged_size
    cdef public bint _has_staged_entries, has_slack, knows_max_timestamp

    cpdef void append(self, object data, int64_t length, int64_t last_offset, int64_t max_timestamp, int64_t offset_of_max_timestamp) except *
    cpdef void begin_write(self) except *
    @cython.locals(settings=LogSettings, offset_index=OffsetIndex, time_index=TimeIndex, size=int64_t, first=int64_t, waited=int64_t)
    cpdef bint should_roll(self, int64_t length, int64_t last_offset, int64_t max_timestamp, int64_t now_ms) except -1
    cpdef void stage(self, int64_t length, int64_t last_offset, int64_t max_timestamp, int64_t offset_of_max_timestamp) except *
    @cython.locals(offset_index=OffsetIndex, time_index=TimeIndex)
    cdef void _stage_entry(self, int64_t last_offset, int64_t position) except *
    cpdef void write(self, object data) except *
    cpdef BatchFinder finder(self, object file=*)
