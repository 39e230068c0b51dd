from ottla.broker.coordination.owned cimport StatesByKey
from ottla.broker.coordination.runner cimport Runner
from ottla.broker.groups.consumer.machine cimport ConsumerMachine

cdef class ConsumerGroups:
    cdef object _cluster, _level, _new_uuid
    cdef StatesByKey _groups
    cdef Runner _runner
    cdef readonly ConsumerMachine machine

    cdef object _group_of(self, str group_id, object beat)
