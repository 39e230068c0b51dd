from libc.stdint cimport int64_t
from ottla.broker.coordination.runner cimport Runner
from ottla.broker.coordination.topic_log cimport TopicLog
from ottla.broker.coordination.owned cimport StatesByKey

cdef class ConsumerMachine:
    cdef object _clock, _cluster, _workers
    cdef StatesByKey _groups
    cdef TopicLog _log
    cdef dict _queues, _waiting
    cdef Runner _runner
    cdef set _tasks
    cdef public int64_t members, rebalances
    cdef public object settings

    cpdef void submit(self, object group, object event) except *
    cpdef bint is_idle(self, object group) except -1
    cdef void _go_on(self, object group, object queue) except *
    cdef bint _advance(self, object group, object event, object decision, object result) except -1
    cpdef object context_of(self, object group)
    cdef void _carry_out(self, object group, object event, list effects) except *
