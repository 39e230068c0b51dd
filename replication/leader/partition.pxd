cimport cython
from libc.stdint cimport int64_t
from ottla.replication.leader.progress cimport ReplicaProgress
from ottla.replication.ports.topic_stats cimport TopicStats
from ottla.replication.ports.waiters cimport Waiters
from ottla.storage.log.partition_log cimport PartitionLog
from ottla.storage.validation.run cimport BatchRun

cdef class Partition:
    cdef public PartitionLog log
    cdef public TopicStats stats
    cdef public Waiters end_waiters, stable_waiters, waiters
    cdef public object topic_partition, _isr_changes, isr_change, leader_epoch_start_offset
    cdef public tuple adding_replicas, isr, maximal_isr, removing_replicas, replicas
    cdef public dict followers, idle_fetches
    cdef public int64_t broker_id, controller_epoch, effective_min_isr, leader_epoch, leader_id, partition_epoch
    cdef public bint has_departing_member, has_failed, is_cut_off, is_leader, is_named_by_id, is_online

    @cython.locals(log=PartitionLog, stats=TopicStats)
    cpdef void append(self, BatchRun run, int64_t required_acks, int64_t now_ms, int64_t origin) except *
    cpdef void on_log_end_moved(self) except *
    @cython.locals(log=PartitionLog, stable_offset=int64_t)
    cpdef bint move_high_watermark(self, int64_t offset) except -1
    cpdef void check_may_append(self, int64_t required_acks) except *
    cpdef bint is_acknowledged(self, int64_t end_offset, int64_t required_acks) except -1
    cpdef void check_replica(self, int64_t broker_id, int64_t asked_epoch) except *
    cpdef bint is_current(self, int64_t asked_epoch) except -1
    cpdef bint serves(self, int64_t asked_epoch, bint or_follower) except -1
    cpdef void check_leader_epoch(self, int64_t asked) except *
    cpdef PartitionLog check_leader(self, int64_t asked_epoch=*, bint or_follower=*)
    @cython.locals(
        log=PartitionLog, progress=ReplicaProgress, end_offset=int64_t, new_high_watermark=int64_t, log_end_offset=int64_t,
        high_watermark=int64_t)
    cpdef bint maybe_advance_high_watermark(self) except -1
    @cython.locals(log=PartitionLog, progress=ReplicaProgress, deleted_more=bint, has_moved=bint)
    cpdef void on_follower_fetch(self, int64_t broker_id, int64_t fetch_offset, int64_t follower_start_offset, int64_t now_ms) except *
