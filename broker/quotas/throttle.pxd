cimport cython
from libc.stdint cimport int64_t
from ottla.broker.quotas.sensors cimport Sensor
from ottla.broker.security.client cimport Client

cdef int64_t CONTROLLER_MUTATION, FETCH, NS_PER_MS, PRODUCE, REQUEST
cdef double PERCENT_OF_SECOND

cdef class Quotas:
    cdef public bint counts_time, is_limited
    cdef public int64_t generation
    cdef readonly list delayed

cdef class Throttle:
    cdef Quotas _quotas
    cdef Client _client
    cdef Sensor _fetch, _produce, _request
    cdef bytes _client_id
    cdef object _mutations, _principal
    cdef readonly int64_t last_time_ms
    cdef int64_t _cause, _delayed_by, _generation, _since_ns, _work_ns

    cpdef void begin(self, int64_t now_ns) except *
    cpdef void interrupt(self, int64_t now_ns) except *
    cpdef void end(self) except *
    cpdef void add_work(self, int64_t work_ns) except *
    @cython.locals(work_ns=int64_t)
    cdef int64_t _take_work(self, int64_t now_ns) except -1
    @cython.locals(sensor=Sensor, now_ms=int64_t, work_ns=int64_t, time_ms=int64_t, other_ms=int64_t, cause=int64_t)
    cpdef int64_t charge(self, int64_t quota, int64_t amount, int64_t now_ns) except -1
    @cython.locals(sensor=Sensor)
    cpdef void charge_more(self, int64_t quota, int64_t amount, int64_t now_ns) except *
    @cython.locals(work_ns=int64_t)
    cpdef void exempt(self, int64_t now_ns) except *
    @cython.locals(sensor=Sensor)
    cpdef double most_fetch_bytes(self, int64_t now_ns) except? -1
    cpdef object mutations(self, int64_t now_ns)
    @cython.locals(sensor=Sensor)
    cdef void _note(self, int64_t cause, int64_t time_ms, int64_t now_ms) except *
    @cython.locals(client=Client, quotas=Quotas)
    cdef void _look_up(self, int64_t now_ms) except *
    cpdef void begin_delay(self) except *
    cpdef void end_delay(self) except *
