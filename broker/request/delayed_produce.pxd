cimport cython
from ottla.broker.loop.purgatory cimport DelayedOperation, Purgatory
from libc.stdint cimport int64_t
from ottla.replication.leader.partition cimport Partition

cdef int64_t ACKS_ALL, FLUSH_TIMEOUT_MS, NONE, REQUEST_TIMED_OUT

cdef class DelayedProduce

cdef class DelayedPartitions(DelayedOperation):
    cdef int64_t _left

    cpdef void let_wait(self, object each, Purgatory purgatory) except *
    cpdef void wait(self, Purgatory purgatory, int64_t timeout_ms) except *
    cpdef void on_decided(self) except *
    cpdef bint try_complete(self) except -1

cdef class AppendedPartition:
    cdef public Partition partition
    cdef public int64_t base_offset, end_offset, error_code
    cdef public Py_ssize_t place
    cdef public bint completed
    cdef public DelayedProduce produce

    cpdef bint try_complete(self) except -1

cdef class DelayedProduce(DelayedPartitions):
    cdef readonly int64_t acks
    cdef object _then, _waiting

    @cython.locals(each=AppendedPartition)
    cpdef void begin(self, Purgatory purgatory, int64_t asked_ms) except *
    @cython.locals(each=AppendedPartition)
    cpdef void on_expiration(self) except *
    cpdef void on_complete(self) except *
    cpdef void cancel(self) except *
    @cython.locals(each=AppendedPartition)
    cdef tuple _release(self)
