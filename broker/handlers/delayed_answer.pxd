cdef class DelayedAnswer:
    cdef object _context, _pending, _response

    cpdef void complete(self, object response) except *
    cpdef object answer(self)
