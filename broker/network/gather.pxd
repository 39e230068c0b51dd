from libc.stdint cimport int64_t

cdef int64_t ALIGNED_BYTES, INLINE_BYTES, PAGE_BYTES

cpdef (Py_ssize_t, bint) put(list parts, list out) except *
cpdef object read_cached(object region)
cpdef object from_next_page(object region, list memory)
