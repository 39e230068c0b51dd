cimport cython
from libc.stdint cimport int64_t
from ottla.replication.follower.fetch_session cimport FetchSessionHandler, FollowedPartition, Found
from ottla.replication.leader.partition cimport Partition
from ottla.replication.ports.topic_stats cimport TopicStats
from ottla.storage.log.partition_log cimport PartitionLog
from ottla.storage.validation.run cimport BatchRun

cdef int64_t BYTES_PER_BATCH, BYTES_PER_PARTITION, BYTES_PER_TURN, END, FIRST_FETCH_WITH_REPLICA_STATE, NO_EPOCH, PARTITION, REPLICATION

cdef class Fetcher:
    cdef public object on_failed, on_log_dir_failure, peer, settings
    cdef readonly str client_id
    cdef readonly int64_t leader_id
    cdef readonly dict beginning_remotely, delayed, followed, throttled, truncating
    cdef readonly list beginning_lower
    cdef readonly FetchSessionHandler session
    cdef public double quiet_until
    cdef public int64_t bytes_in, requests, unanswered
    cdef object _awake, _broker_epoch, _interruption, _on_idle, _replica_state, _task
    cdef bint _interrupted

    cdef void _set_replica(self, object request, int64_t version) except *
    @cython.locals(partition=Partition, log=PartitionLog, cost=int64_t, high_watermark=int64_t, lag=int64_t)
    cpdef int64_t process(self, FollowedPartition followed, Found found) except -1
    @cython.locals(
        run=BatchRun, partition=Partition, stats=TopicStats, session=FetchSessionHandler, offset=int64_t, next_offset=int64_t, size=int64_t)
    cdef int64_t _append(self, FollowedPartition followed, PartitionLog log, object records) except -1
    cpdef bint is_current(self, FollowedPartition followed) except -1
    cpdef int64_t last_epoch(self, PartitionLog log) except? -2
    cdef void _obey_quota(self) except *
