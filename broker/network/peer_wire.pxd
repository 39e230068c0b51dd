from libc.stdint cimport int64_t

cdef class Wire:
    cdef readonly str host, name
    cdef readonly bint is_lost
    cdef object _loop, _timer, _transport, _waiter
    cdef object _frame, _window
    cdef bytes _head
    cdef double _deadline
    cdef int64_t _correlation_id, _max_response_bytes
    cdef Py_ssize_t _filled
    cdef bint _keeps_window

    cpdef void keep_window(self) except *
    cpdef void lose(self, str why) except *
    cdef void _arm(self, double when) except *
    cdef void _begin(self, Py_ssize_t filled) except *
    cdef void _go_on(self, Py_ssize_t filled) except *
    cdef bint _is_expected(self, int64_t size, int64_t correlation_id, Py_ssize_t filled) except -1
    cdef void _answered(self, object frame) except *
    cdef void _offend(self, str what) except *
