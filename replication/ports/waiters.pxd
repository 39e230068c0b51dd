cdef class Waiters:
    cdef public list waiting

    cpdef void add(self, object waiter) except *
    cpdef void notify(self) except *
