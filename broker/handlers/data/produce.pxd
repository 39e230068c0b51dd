cimport cython
from libc.stdint cimport int64_t
from ottla.broker.request.delayed_produce cimport AppendedPartition
from ottla.protocol.cursors.produce cimport ProduceAnswer, ProduceReader
from ottla.replication.leader.partition cimport Partition
from ottla.storage.validation.batch cimport read_only_batch
from ottla.storage.validation.run cimport BatchRun

cdef int64_t AT_ONCE, BYTES_SHIFT, CLIENT, CURRENT_MAGIC, END, FIRST_THAT_ADDS, FIRST_WITH_LEADER_HINTS, HEADER_SIZE
cdef int64_t INVALID_PRODUCER_ID_MAPPING, INVALID_REQUIRED_ACKS, INVALID_TOPIC_EXCEPTION, NONE
cdef int64_t NO_RECORDS, NOT_LEADER_OR_FOLLOWER, PARTITION, PRODUCE, RECORDS_SHIFT, TOPIC, TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_MASK
cdef int64_t TRANSACTIONAL_ID, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, WRITE
cdef int64_t FIRST_WITH_TOPIC_IDS

cdef class Produce:
    cdef readonly ProduceReader reader
    cdef public tuple failed
    cdef ProduceAnswer _answer
    cdef BatchRun _run
    cdef object _connection, _pending, _services
    cdef int64_t _accepted, _acks, _now_ms, _refused_with, _topic_refusal, _throttle_time_ms, _version
    cdef Py_ssize_t _size
    cdef str _topic, _transactional_id
    cdef bytes _topic_bytes
    cdef dict _partitions
    cdef bint _has_valid_acks, _is_closed, _is_looked_through, _may_write
    cdef list _waiting, _in_work, _unverified
    cdef tuple _transaction
    cdef set _leaders

    @cython.locals(reader=ProduceReader, run=BatchRun, kind=int64_t)
    cpdef bint run(self, int64_t limit) except -1
    @cython.locals(partition=Partition, run=BatchRun, index=int64_t, place=Py_ssize_t, size=int64_t)
    cdef void _serve(self, ProduceReader reader) except *
    @cython.locals(run=BatchRun, kind=int64_t)
    cdef bint _look_through(self, ProduceReader reader, int64_t limit) except -1
    cdef bint _is_kept_back(self, int64_t index, Partition partition) except -1
    @cython.locals(run=BatchRun)
    cdef bint _is_confirmed_here(self, int64_t index) except -1
    cdef void _leave_unverified(self, int64_t index, Partition partition) except *
    cdef void _begin_topic(self, bytes topic) except *
    @cython.locals(end_offset=int64_t)
    cdef void _wait_if_unsafe(self, Partition partition, BatchRun run, Py_ssize_t place) except *
    cpdef object finish(self)
    cdef void _take_throttle_time(self) except *
    cdef object _answer_or_wait(self, object pending)
    cdef object _encoded(self)
