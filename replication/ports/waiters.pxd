cdef class Waiters:
    cdef public dict waiting
    cdef Py_ssize_t _sweep_at

    cpdef void add(self, object waiter) except *
    cpdef void notify(self) except *
    cpdef void notify_while(self, object goes_on) except *
