cimport cython
from libc.stdint cimport int64_t
from ottla.storage.log.reads cimport FetchSlice
from ottla.storage.segment.batch_finder cimport BatchFinder
from ottla.storage.segment.log_segments cimport LogSegments
from ottla.storage.segment.segment cimport Segment

cdef int64_t CHUNK_BYTES, HEADER_SIZE, INLINE_BYTES

cdef class BatchReader:
    cdef readonly dict hints
    cdef LogSegments _segments

    @cython.locals(finder=BatchFinder, segment=Segment, higher=Segment, position=int64_t, next_offset=int64_t, limit=int64_t, length=int64_t)
    cdef FetchSlice find(
        self, Segment active, int64_t log_end_offset, int64_t offset, int64_t max_bytes, int64_t end_offset, bint min_one_batch, bint may_wait)
    @cython.locals(segment=Segment, finder=BatchFinder)
    cdef BatchFinder _locate(self, Segment active, int64_t offset, int64_t ahead, bint may_wait)
    @cython.locals(finder=BatchFinder)
    cdef int64_t _position_of(self, Segment active, Segment segment, int64_t end_offset, bint may_wait) except -1
    cdef void _remember(self, int64_t offset, Segment segment, int64_t position) except *

cpdef object file_of(Segment active, Segment segment, bint may_wait)
