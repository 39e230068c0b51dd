from libc.stdint cimport int64_t
from ottla.protocol.cursors.consumer_heartbeat cimport PlainHeartbeat, plain_answer
from ottla.broker.groups.consumer.coordinator cimport ConsumerGroups
from ottla.broker.security.access cimport Access
from ottla.broker.security.client cimport Client
cimport cython

cdef int64_t READ, GROUP, ERRORS

cdef object _refused(object error)
cdef object _response(object result)

@cython.locals(
    beat=PlainHeartbeat, member=bytes, instance=bytes, group_id=str, member_id=str, instance_id=str, client=Client, access=Access,
    consumer=ConsumerGroups, counts=dict, error=int64_t, interval_ms=int64_t)
cpdef object handle_consumer_group_heartbeat_frame(object frame, Py_ssize_t offset, int64_t version, int64_t correlation_id, object connection, object services)
