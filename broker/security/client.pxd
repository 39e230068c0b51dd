from libc.stdint cimport int64_t

cdef class Client:
    cdef readonly str client_host, connection_id, java_host, listener_name, security_protocol
    cdef readonly object client_port
    cdef public object client_software_name, client_software_version, on_lost, principal, sasl
    cdef public bint is_lost
    cdef public int64_t api_key
    cdef readonly bytes client_id_bytes
    cdef str _client_id

    cpdef void identify(self, bytes client_id) except *
