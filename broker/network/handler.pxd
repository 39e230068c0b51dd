cdef class RequestHandler:
    cpdef object handle(self, object frame, object connection)
    cpdef bint is_urgent(self, object view, Py_ssize_t begin, Py_ssize_t end, object connection) except -1
    cpdef bint may_follow_appends(self, object view, Py_ssize_t begin, Py_ssize_t end) except -1
    cpdef void on_kept(self, object connection) except *
    cpdef void on_bad_length(self, object connection) except *
    cpdef bint takes_empty(self) except -1
