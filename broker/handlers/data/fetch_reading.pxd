cimport cython
from libc.stdint cimport int64_t
from ottla.broker.fetching.fetch_session cimport FetchSession, SessionPartition
from ottla.broker.handlers.data.fetch_writing cimport FetchWriter
from ottla.broker.security.access cimport Access
from ottla.protocol.cursors.fetch cimport FetchReader
from ottla.replication.leader.partition cimport Partition
from ottla.replication.ports.waiters cimport Waiters
from ottla.replication.reading.fetch_read cimport FetchParams, cut_first_batch, note_end, read_one
from ottla.storage.log.partition_log cimport PartitionLog
from ottla.storage.segment.segment cimport Segment

cdef int64_t ANSWERED, CLUSTER, CLUSTER_ACTION, CONSUMER, CONVERTING, DEBUGGING_CONSUMER, END, FETCH, FINAL_EPOCH
cdef int64_t FIRST_THAT_KNOWS_STORAGE_ERRORS, FIRST_THAT_MAY_READ_FROM_FOLLOWERS, FIRST_WITH_ONE_BATCH, FIRST_WITH_TIMESTAMPS
cdef int64_t FIRST_WITH_TOPIC_IDS, FIRST_WITH_ZSTD, FIRST_WITHOUT_OLD_FORMATS
cdef int64_t FORGOTTEN, GATHERING, INITIAL_EPOCH, NO_EPOCH, NO_ERROR, NO_PREFERENCE, NO_SESSION, NOT_AUTHORIZED, NOT_LEADER, PARTITION, READ
cdef int64_t READING, STORAGE_ERROR, TAKING, TOPIC, UNKNOWN, UNKNOWN_ID, UNSUPPORTED_COMPRESSION, UNSUPPORTED_VERSION, VERIFYING, WAITING
cdef int64_t WATCHING, WRITING

cdef double INFINITE

cdef class Fetch:
    cdef public object delayed
    cdef readonly object connection, services
    cdef Access _access
    cdef readonly FetchSession session
    cdef readonly FetchParams params
    cdef readonly list parts, unconverted
    cdef public int64_t stage
    cdef readonly int64_t max_wait_ms
    cdef public bint has_moved
    cdef readonly bint is_incremental
    cdef FetchReader _reader
    cdef FetchWriter _writer
    cdef SessionPartition _current
    cdef list _entries, _named, _unknown
    cdef bytes _topic
    cdef dict _converted, _of_topic
    cdef object _remote, _replicas
    cdef int64_t _at, _correlation_id, _error_code, _grown, _max_bytes, _min_bytes, _refusal, _waited_for
    cdef readonly int64_t version
    cdef bint _answers_anyway, _creates_session, _failed, _finds_later, _has_unread, _is_diverted, _is_follower, _is_given_up, _is_judged
    cdef bint _is_limited, _reads_old_segment

    cpdef bint run(self, int64_t limit) except -1
    cdef void _find_session(self) except *
    cdef void _refuse_request(self, int64_t code) except *
    @cython.locals(reader=FetchReader, session=FetchSession, asked=SessionPartition, topic=bytes, name=str, kind=int64_t, number=int64_t)
    cdef bint _take(self, int64_t limit) except -1
    cdef str _name_of(self, bytes topic)
    @cython.locals(reader=FetchReader, params=FetchParams, version=int64_t, replica_id=int64_t, may_read_from_followers=bint)
    cdef void _begin(self) except *
    @cython.locals(most=double)
    cdef void _limit_bytes(self) except *
    @cython.locals(named=SessionPartition, asked=SessionPartition)
    cdef void _end_session(self) except *
    @cython.locals(params=FetchParams, now_ms=int64_t)
    cdef void _begin_reading(self) except *
    @cython.locals(entries=list, asked=SessionPartition, end=int64_t)
    cdef bint _read(self, int64_t limit) except -1
    @cython.locals(
        partition=Partition, log=PartitionLog, segment=Segment, params=FetchParams, index=int64_t, left=int64_t, size=int64_t,
        min_one_batch=bint, refused=int64_t)
    cdef void _read_one(self, SessionPartition asked) except *
    cdef int64_t _read_remote(self, SessionPartition asked, Partition partition, object moved) except? -2
    cdef void _look_up_topic(self, SessionPartition asked) except *
    @cython.locals(params=FetchParams)
    cdef bint _may_read(self, str name) except -1
    cdef bint _may_follow(self) except -1
    cdef void _refuse(self, SessionPartition asked, int64_t code) except *
    cdef void _fail(self, SessionPartition asked, int64_t code) except *
    cdef int64_t _too_old_for(self, Partition partition) except -2
    cdef bint _is_newer(self, Partition partition) except -1
    cpdef int64_t old_magic(self) except -1
    @cython.locals(asked=SessionPartition, partition=Partition)
    cdef void _find_unconverted(self) except *
    cdef void _decide(self) except *
    cdef bint _must_answer(self) except -1
    @cython.locals(entries=list, asked=SessionPartition, partition=Partition, waiters=Waiters, end=int64_t)
    cdef bint _watch(self, int64_t limit) except -1
    cpdef void on_moved(self, SessionPartition asked, Partition partition) except *
    cdef bint _is_served(self, SessionPartition asked, Partition partition) except -1
    @cython.locals(end_offset=int64_t, size=int64_t, segment=Segment)
    cdef int64_t _growth(self, SessionPartition asked, Partition partition) except? -2
    @cython.locals(writer=FetchWriter, entries=list, asked=SessionPartition, known=int64_t, last=int64_t, end=int64_t)
    cdef bint _write(self, int64_t limit) except -1
    @cython.locals(writer=FetchWriter, params=FetchParams, is_follower=bint)
    cdef FetchWriter _begin_answer(self)
    @cython.locals(writer=FetchWriter)
    cdef void _finish(self) except *
    @cython.locals(size=int64_t)
    cdef void _count_overhead(self) except *
