from libc.stdint cimport int64_t

cdef bytes ATTRIBUTES_AND_TIME, _NO_HEADERS, _NULL
cdef int64_t _KNOWN_VARINTS
cdef list VARINTS

cpdef bytes encode_pairs(object pairs)
cpdef void add_pair(int64_t delta, bytes key, bytes value, list parts) except *
