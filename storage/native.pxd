# A part of a file that a response carries, for those who find it and those who send it; and which of its bytes are copied for that.

from libc.stdint cimport int64_t


cdef enum:
    PAGE_BYTES = 4096
    INLINE_BYTES = 16384
    PACKET_BYTES = 65536


cdef inline int64_t bytes_to_copy(int64_t position, int64_t length) noexcept nogil:
    # Up to the next page of the file, where what follows leaves as one packet; 0 for a region that is sent in any other way.
    cdef int64_t copied = PAGE_BYTES - (position & (PAGE_BYTES - 1))
    return copied if copied < PAGE_BYTES and length > INLINE_BYTES and length - copied <= PACKET_BYTES else 0


cdef class Region:
    cdef readonly object file
    cdef readonly int64_t position
    cdef readonly int64_t length
    cdef readonly bint end_is_cached
    cdef bytes begun  # the `bytes_to_copy` of it, or None; the rest is read only, because these bytes are those of this place


cdef Region region_between(
    file, int fd, entries, Py_ssize_t count, int64_t base_offset, int64_t size, int64_t offset, int64_t max_bytes, int64_t *next_offset
)
