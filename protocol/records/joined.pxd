from ottla.protocol.records cimport room as rooms

cdef class Joined:
    cdef readonly bytearray room
    cdef readonly Py_ssize_t size

    cpdef void add(self, object piece) except *
    cpdef object view(self)
