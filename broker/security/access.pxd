from libc.stdint cimport int64_t
from ottla.broker.security.client cimport Client
cimport cython

cdef class Access:
    cdef Client _client
    cdef object _audit, _authorizer
    cdef readonly dict _decisions
    cdef int64_t _count, _generation
    cdef bint _logs_allowed

    cpdef bint may(self, int64_t operation, int64_t resource_type, str name=*, bint log_if_denied=*) except -1
    cpdef bint acts_for_cluster(self) except -1
    cpdef void forget(self) except *
    @cython.locals(decisions=dict)
    cdef bint _decision(self, int64_t operation, int64_t resource_type, str name) except -1
    cdef bint _decide(self, int64_t operation, int64_t resource_type, str name) except -1
    cdef bint _ask(self, int64_t operation, int64_t resource_type, str name) except -1

cdef int64_t CLUSTER, CLUSTER_ACTION, LAST_REMEMBERED
