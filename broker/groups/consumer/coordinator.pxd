from libc.stdint cimport int64_t
from ottla.broker.coordination.owned cimport StatesByKey
from ottla.broker.coordination.runner cimport Runner
from ottla.broker.groups.consumer.machine cimport ConsumerMachine
from ottla.broker.groups.consumer.heartbeats cimport has_no_news

cdef class ConsumerGroups:
    cdef object _cluster, _level, _new_uuid
    cdef StatesByKey _groups
    cdef Runner _runner
    cdef readonly ConsumerMachine machine

    cdef object _group_of(self, str group_id, object beat)
    cpdef object without_news(self, str group_id, str member_id, int64_t epoch, str instance_id, str client_id, str client_host)
    cpdef int64_t renew(self, object group, str member_id) except -1
