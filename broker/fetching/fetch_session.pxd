cimport cython
from libc.stdint cimport int64_t
from ottla.replication.leader.partition cimport Partition
from ottla.replication.leader.progress cimport ReplicaProgress
from ottla.replication.ports.waiters cimport Waiters
from ottla.replication.reading.asked_partition cimport AskedPartition
from ottla.replication.reading.fetch_read cimport FetchParams
from ottla.storage.log.partition_log cimport PartitionLog

cdef int64_t FINAL_EPOCH, FORGOTTEN, INITIAL_EPOCH, LAST_EPOCH, NO_EPOCH, NO_PREFERENCE, NO_SESSION, RELEASED_PER_TURN
cdef bytes ZERO_UUID

cdef class SessionPartition(AskedPartition):
    cdef readonly FetchSession session
    cdef readonly bytes topic
    cdef public str name
    cdef public Partition partition
    cdef public ReplicaProgress progress
    cdef public Waiters waits_in
    cdef public int64_t error_code, told_high_watermark, told_log_start_offset, turn
    cdef public bint is_idle, is_listed, is_unknown
    cdef int64_t _counted

    cpdef void update_request(
        self, int64_t offset, int64_t max_bytes, int64_t leader_epoch, int64_t last_fetched_epoch, int64_t start) except *
    @cython.locals(partition=Partition)
    cpdef bint try_complete(self) except -1
    cpdef void wait_in(self, Waiters waiters) except *
    cpdef void set_partition(self, Partition partition) except *
    @cython.locals(partition=Partition, waiters=Waiters)
    cpdef void release(self) except *
    @cython.locals(partition=Partition, log=PartitionLog)
    cpdef bint maybe_rest(self, FetchParams params) except -1
    cpdef void count(self) except *
    cpdef void end(self) except *
    cpdef void forget_found(self) except *
    @cython.locals(news=bint)
    cpdef bint has_news(self) except -1

cdef class FetchSession:
    cdef public int64_t created_ms, epoch, fetches, last_fetch_ms, last_used_ms, session_id, size
    cdef public bint has_ended, has_stale, is_follower, is_watched, uses_topic_ids
    cdef public list changed
    cdef public object fetch
    cdef dict _partitions
    cdef int64_t _last_turn
    cdef bint _is_releasing, _is_ordered
    cdef object _client
    cdef tuple _reader

    @cython.locals(of_topic=dict)
    cpdef SessionPartition find(self, bytes topic, int64_t index)
    @cython.locals(of_topic=dict, asked=SessionPartition)
    cpdef SessionPartition add(self, bytes topic, str name, int64_t index)
    @cython.locals(asked=SessionPartition)
    cpdef void forget(self, bytes topic, int64_t index) except *
    @cython.locals(last=SessionPartition)
    cpdef void list_changed(self, SessionPartition asked) except *
    @cython.locals(asked=SessionPartition)
    cpdef list in_order(self)
    cpdef void serve_last(self, SessionPartition asked) except *
    cpdef void begin_fetch(self, object fetch) except *
    cpdef void on_fetch(self, int64_t now_ms) except *
    cpdef void end_fetch(self, object fetch) except *

cpdef int64_t next_epoch(int64_t epoch) except? -2
