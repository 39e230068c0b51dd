cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields
from ottla.storage.segment.offset_index cimport OffsetIndex

cdef int64_t BOUNDS_SIZE, CHUNK_BYTES, CURRENT_MAGIC, GAP_BYTES, HEADER_SIZE, INLINE_BYTES, LOG_OVERHEAD, MIN_BATCH_SIZE, PACKET_BYTES, PAGE_BYTES

@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class BatchFinder:
    cdef readonly object segment
    cdef object _file
    cdef OffsetIndex _index
    cdef bytes _data, _first
    cdef int64_t _base_offset, _data_at, _first_at, _size
    cdef readonly int64_t base_offset, end, last_offset, next_offset, position

    cpdef bint seek(self, int64_t position, int64_t length) except -1
    @cython.locals(size=object)
    cdef bint _seek_message(self, int64_t position, int64_t at) except -1
    cpdef bint locate(self, int64_t offset, int64_t ahead) except -1
    cpdef int64_t indexed_position(self, int64_t offset) except -1
    cdef bint _locate_anew(self, int64_t offset, int64_t ahead) except -1
    cdef bint _walk(self, int64_t position, int64_t offset, int64_t length) except -1
    cdef bint _is_entry(self, int64_t entry_offset, int64_t position, int64_t length) except -1
    cpdef int64_t fit(self, int64_t max_bytes) except -1
    cpdef bint has_read(self, int64_t position) except -1
    cpdef object read_of(self, int64_t position, int64_t length)
