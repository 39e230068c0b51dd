from ottla.protocol.records cimport room as rooms

cpdef bytes join(list pieces)

cdef class Joined:
    cdef readonly bytearray room
    cdef readonly Py_ssize_t size

    cpdef void add(self, object piece) except *
    cpdef object view(self)
