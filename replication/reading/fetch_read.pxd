cimport cython
from libc.stdint cimport int64_t
from ottla.replication.leader.partition cimport Partition
from ottla.replication.ports.waiters cimport Waiters
from ottla.replication.reading.asked_partition cimport AskedPartition
from ottla.storage.log.partition_log cimport PartitionLog
from ottla.storage.log.reads cimport FetchSlice
from ottla.storage.segment.file_region cimport FileRegion
from ottla.storage.segment.segment cimport Segment

cdef int64_t CONSUMER, NO_EPOCH, NO_PREFERENCE, READ_COMMITTED
cdef bytes ZERO_UUID

cdef class FetchParams:
    cdef public int64_t isolation, left, now_ms, replica_id, size, throttled_bytes
    cdef public bint finds_records, has_turn, is_first_reading, is_withheld, may_wait, min_one_batch, or_follower
    cdef public str listener, rack_id

    cpdef void begin(self, int64_t max_bytes, int64_t now_ms, bint min_one_batch) except *
    @cython.locals(log=PartitionLog)
    cpdef int64_t end_offset(self, Partition partition) except? -2
    cpdef Waiters waiters(self, Partition partition)

@cython.locals(log=PartitionLog, topic_id=bytes)
cpdef void read_one(object replicas, Partition partition, AskedPartition asked, FetchParams params) except *
@cython.locals(found=FetchSlice, whole=FileRegion, limit=int64_t)
cpdef void cut_first_batch(PartitionLog log, AskedPartition asked, FetchParams params) except *
@cython.locals(segment=Segment)
cpdef void note_end(PartitionLog log, AskedPartition asked) except *
@cython.locals(log=PartitionLog, found=FetchSlice, region=FileRegion, offset=int64_t, next_offset=int64_t, max_bytes=int64_t, size=int64_t)
cdef void _find_records(object replicas, Partition partition, AskedPartition asked, FetchParams params) except *
cdef list _aborted(PartitionLog log, int64_t offset, int64_t next_offset, FetchParams params)
cdef bint _passes(object quota, Partition partition, FetchParams params, int64_t size) except -1
cdef int64_t _preferred_read_replica(object replicas, Partition partition, AskedPartition asked, FetchParams params) except? -2
cdef bint _has_parted(PartitionLog log, AskedPartition asked) except -1
