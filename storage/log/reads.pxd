cimport cython
from libc.stdint cimport int64_t
from ottla.storage.segment.file_region cimport FileRegion

@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class FetchSlice:
    cdef readonly FileRegion region
    cdef readonly int64_t next_offset
