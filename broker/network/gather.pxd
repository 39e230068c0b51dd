cimport cython
from libc.stdint cimport int64_t
from ottla.protocol.cursors cimport fields

cdef int64_t ALIGNED_BYTES, INLINE_BYTES, PAGE_BYTES, PACKET_BYTES

@cython.locals(size=int64_t, has_regions=bint)
cpdef (Py_ssize_t, bint) put(list parts, list out) except *
@cython.locals(run=list, joined=list, size=int64_t, length=int64_t, has_regions=bint)
cpdef list join(list parts)
@cython.locals(room=bytearray, start=int64_t, at=int64_t, end=int64_t)
cdef void _join_run(list run, int64_t size, bint has_regions, list joined) except *
cpdef bint read_cached(object region, object room) except -1
cpdef object from_next_page(object region, list memory)
