# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Requests that came together, compiled: Produces of plain batches, Fetches of one partition by who has far to read, and the way to both.

Stands for `Dispatcher.handle_several` and `produce.handle_produce_frames`, which are the authority, and before
`fetch_one_partition.handle_fetch_frame`, which gets whatever is not exactly that: `tests/integration/test_fetch_compiled.py` holds both equal.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from protocol.big_endian cimport i32, put32, u16, u32
from protocol.native cimport HEAD_WITH_ID_BYTES, FetchOfOne, parse_with_id, put_head_with_id
from storage.native cimport INLINE_BYTES, Region, region_between
from storage.slots cimport number, set_slot, slot, slot_of_type

from broker.fetching.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, FetchSessionCache, SessionPartition
from broker.handlers.data.partition_errors import partition_error
from broker.request.internal_topics import INTERNAL_TOPICS
from broker.network.answer_writer import TURN_BYTES
from broker.request.services import Services
from protocol.compiled import compiled
from protocol.fetch_fast_path import END_WITH_ID, FIRST_VERSION_WITH_IDS
from protocol.produce_fast_path import MAX_TOGETHER, encode_produce_responses, read_several
from replication.ports.cluster import MetadataCache
from replication.errors import ReplicationError
from replication.reading.fetch_read import CONSUMER, READ_COMMITTED
from replication.leader.partition import Partition
from replication.control.replica_manager import ReplicaManager
from replication.ports.topic_stats import TopicStats
from storage.disk.clock import elapsed_ms
from storage.segment.cold_lookups import ColdRead
from storage.errors import StorageError
from storage.segment.file_region import FileRegion
from storage.segment.offset_index import OffsetIndex
from storage.log.partition_log import PartitionLog
from storage.producers.state import ProducerState
from storage.producers.state_manager import ProducerStateManager
from storage.disk.real_file import RealFile
from storage.segment.segment import Segment

if compiled("protocol.native") is None or not issubclass(FileRegion, Region):
    raise ImportError("protocol.native or storage.native is not in use, on which this is built")

cdef enum:
    HEADER_SIZE = 10
    NO_EPOCH = -1
    ENTRY_SIZE = 8

cdef:
    int first_version = FIRST_VERSION_WITH_IDS
    int32_t consumer = CONSUMER
    int32_t read_committed = READ_COMMITTED
    int32_t no_session = NO_SESSION
    int32_t initial_epoch = INITIAL_EPOCH
    int32_t final_epoch = FINAL_EPOCH
    Py_ssize_t turn_bytes = TURN_BYTES
    Py_ssize_t max_together = MAX_TOGETHER
    object end_of_answer = END_WITH_ID
    object internal_topics = INTERNAL_TOPICS

    Py_ssize_t broker_cluster = slot_of_type(Services, "cluster")
    Py_ssize_t broker_clock = slot_of_type(Services, "clock")
    Py_ssize_t broker_sessions = slot_of_type(Services, "fetch_sessions")
    Py_ssize_t broker_max_bytes = slot_of_type(Services, "fetch_max_bytes")
    Py_ssize_t broker_replicas = slot_of_type(Services, "replica_manager")
    Py_ssize_t cluster_names = slot_of_type(MetadataCache, "names_by_id")
    Py_ssize_t replicas_partitions = slot_of_type(ReplicaManager, "partitions")
    Py_ssize_t partition_is_leader = slot_of_type(Partition, "is_leader")
    Py_ssize_t partition_leader_epoch = slot_of_type(Partition, "leader_epoch")
    Py_ssize_t partition_log = slot_of_type(Partition, "log")
    Py_ssize_t partition_stats = slot_of_type(Partition, "stats")
    Py_ssize_t partition_is_cut_off = slot_of_type(Partition, "is_cut_off")
    Py_ssize_t partition_isr = slot_of_type(Partition, "isr")
    Py_ssize_t partition_min_isr = slot_of_type(Partition, "effective_min_isr")
    Py_ssize_t partition_followers = slot_of_type(Partition, "followers")
    Py_ssize_t partition_departing = slot_of_type(Partition, "has_departing_member")
    Py_ssize_t partition_waiters = slot_of_type(Partition, "waiters")
    Py_ssize_t stats_produced = slot_of_type(TopicStats, "produce_requests")
    Py_ssize_t stats_messages = slot_of_type(TopicStats, "messages_in")
    Py_ssize_t stats_bytes_in = slot_of_type(TopicStats, "bytes_in")
    Py_ssize_t stats_requests = slot_of_type(TopicStats, "fetch_requests")
    Py_ssize_t stats_bytes_out = slot_of_type(TopicStats, "bytes_out")
    Py_ssize_t cache_sessions = slot_of_type(FetchSessionCache, "sessions")
    Py_ssize_t session_epoch_at = slot_of_type(FetchSession, "epoch")
    Py_ssize_t session_last_used = slot_of_type(FetchSession, "last_used_ms")
    Py_ssize_t session_partitions = slot_of_type(FetchSession, "partitions")
    Py_ssize_t session_uses_ids = slot_of_type(FetchSession, "uses_topic_ids")
    Py_ssize_t session_watch = slot_of_type(FetchSession, "watch")
    Py_ssize_t asked_name = slot_of_type(SessionPartition, "name")
    Py_ssize_t asked_topic_id = slot_of_type(SessionPartition, "topic_id")
    Py_ssize_t asked_partition = slot_of_type(SessionPartition, "partition")
    Py_ssize_t asked_offset = slot_of_type(SessionPartition, "offset")
    Py_ssize_t asked_max_bytes = slot_of_type(SessionPartition, "max_bytes")
    Py_ssize_t asked_leader_epoch = slot_of_type(SessionPartition, "leader_epoch")
    Py_ssize_t asked_last_epoch = slot_of_type(SessionPartition, "last_fetched_epoch")
    Py_ssize_t asked_start = slot_of_type(SessionPartition, "start")
    Py_ssize_t asked_high_watermark = slot_of_type(SessionPartition, "high_watermark")
    Py_ssize_t asked_log_start = slot_of_type(SessionPartition, "log_start_offset")
    Py_ssize_t log_topic_id = slot_of_type(PartitionLog, "topic_id")
    Py_ssize_t log_high_watermark = slot_of_type(PartitionLog, "high_watermark")
    Py_ssize_t log_start_offset = slot_of_type(PartitionLog, "log_start_offset")
    Py_ssize_t log_end_offset = slot_of_type(PartitionLog, "log_end_offset")
    Py_ssize_t log_producers = slot_of_type(PartitionLog, "producer_state")
    Py_ssize_t log_hints = slot_of_type(PartitionLog, "read_hints")
    Py_ssize_t log_active_segment = slot_of_type(PartitionLog, "active_segment")
    Py_ssize_t producers_state = slot_of_type(ProducerStateManager, "state")
    Py_ssize_t state_first_unstable = slot_of_type(ProducerState, "first_unstable_offset")
    Py_ssize_t segment_base_offset = slot_of_type(Segment, "base_offset")
    Py_ssize_t segment_size = slot_of_type(Segment, "size")
    Py_ssize_t segment_file = slot_of_type(Segment, "_file")
    Py_ssize_t segment_index = slot_of_type(Segment, "_offset_index")
    Py_ssize_t index_mapped = slot_of_type(OffsetIndex, "_mapped")
    Py_ssize_t index_written = slot_of_type(OffsetIndex, "_written")
    Py_ssize_t index_tail = slot_of_type(OffsetIndex, "_tail")
    Py_ssize_t index_map = slot_of_type(OffsetIndex, "_map")
    Py_ssize_t file_descriptor = slot_of_type(RealFile, "descriptor")


cdef struct Slots:
    Py_ssize_t routes, services, several_handler, requests, sample_at, version

cdef Slots slots
cdef type dispatcher_type = None, route_type = None
cdef object handle_several_in_python = None


def stand_before(type dispatcher not None, type route not None):
    """The classes whose slots `handle_several` reads from now on; what it leaves is done by the one that `dispatcher` has."""
    global dispatcher_type, route_type, handle_several_in_python
    slots.routes = slot_of_type(dispatcher, "_routes")
    slots.services = slot_of_type(dispatcher, "_services")
    slots.several_handler = slot_of_type(route, "several_handler")
    slots.requests = slot_of_type(route, "requests")
    slots.sample_at = slot_of_type(route, "sample_at")
    slots.version = slot_of_type(route, "version")
    dispatcher_type, route_type, handle_several_in_python = dispatcher, route, dispatcher.handle_several


def handle_several(self, view, Py_ssize_t position, Py_ssize_t end, connection):
    """`Dispatcher.handle_several`."""
    cdef Py_buffer buffer
    cdef int32_t kind
    cdef int64_t requests, sample_at
    if type(self) is not dispatcher_type:
        return handle_several_in_python(self, view, position, end, connection)
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= buffer.len - 8:
            return None
        kind = i32(<const uint8_t *>buffer.buf + position + 4)
    finally:
        PyBuffer_Release(&buffer)
    route = (<dict?>slot(self, slots.routes)).get(kind)
    if type(route) is not route_type:
        return None
    handler = slot(route, slots.several_handler)
    requests = number(route, slots.requests)
    sample_at = number(route, slots.sample_at)
    if handler is None or requests < sample_at <= requests + max_together:
        return None
    done = handler(view, position, end, slot(route, slots.version), connection, slot(self, slots.services))
    if done is not None:
        set_slot(route, slots.requests, requests + <int64_t>(<tuple?>done)[1])
    return done


cdef object answer_each_in_python = None


def answer_with(answer_each):
    """`handle_produce_frames` gives what that makes where answers are not ready, or nobody waits for them."""
    global answer_each_in_python
    answer_each_in_python = answer_each


def handle_produce_frames(view, Py_ssize_t position, Py_ssize_t end, int version, connection, broker):
    """`produce.handle_produce_frames`, and what it calls of `Partition`, step by step."""
    cdef tuple found, head
    cdef list batches, first_offsets
    cdef dict partitions
    cdef int64_t end_offset, size
    cdef int acks
    if type(broker) is not Services:
        return None
    found = read_several(view, position, end)
    if found is None:
        return None
    head = found[0]
    batches = found[1]
    acks = head[0]
    topic = head[2]
    replicas = slot(broker, broker_replicas)
    if type(replicas) is not ReplicaManager or not -1 <= acks <= 1 or topic in internal_topics:
        return None
    partitions = (<dict?>slot(replicas, replicas_partitions)).get(topic)
    partition = None if partitions is None else partitions.get(head[3])
    if type(partition) is not Partition or slot(partition, partition_is_leader) is not True:
        return None
    if acks == -1 and (
        slot(partition, partition_is_cut_off) is not False
        or len(<tuple?>slot(partition, partition_isr)) < number(partition, partition_min_isr)
    ):
        return None
    log = slot(partition, partition_log)
    stats = slot(partition, partition_stats)
    if type(log) is not PartitionLog or type(stats) is not TopicStats:
        return None
    try:
        first_offsets, size = log.append_several_plain(
            batches, slot(partition, partition_leader_epoch), slot(broker, broker_clock).now_ms(), version
        )
        if not first_offsets:
            return None
        end_offset = number(log, log_end_offset)
        producers = slot(log, log_producers)
        if slot(partition, partition_followers) or slot(partition, partition_departing) is not False or producers.state.unreplicated:
            partition._on_appended(log, end_offset - <int64_t>first_offsets[0], size, len(first_offsets))
        else:
            set_slot(stats, stats_produced, number(stats, stats_produced) + len(first_offsets))
            set_slot(stats, stats_messages, number(stats, stats_messages) + end_offset - <int64_t>first_offsets[0])
            set_slot(stats, stats_bytes_in, number(stats, stats_bytes_in) + size)
            set_slot(log, log_high_watermark, end_offset)
            waiters = slot(partition, partition_waiters)
            if waiters.waiting:
                waiters.notify()
    except (StorageError, ReplicationError) as error:
        partition_error(error, broker)
        return None
    if acks == 1 or (acks == -1 and number(log, log_high_watermark) >= number(log, log_end_offset)):
        answered = encode_produce_responses(version, found[2], topic, head[3], first_offsets, slot(log, log_start_offset))
        return [answered], len(batches), found[3], len(<bytes>answered)
    return answer_each_in_python(broker, partition, version, head, found[2], first_offsets, found[3])


def handle_fetch_frames(view, Py_ssize_t position, Py_ssize_t end, int version, connection, broker):
    """Answers the first of the requests in `view[position:end]`, which begin with their lengths; at least one is complete.

    (their answers behind their lengths, in parts, how many, where the next request begins, bytes of the answers), or None if the first is
    one that `handle_fetch_frame` has to answer.
    """
    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef uint32_t kind
    cdef Py_ssize_t size, head, count = 0
    cdef int64_t total = 0, answered, now_ms = -1
    cdef list parts
    if version < first_version or type(broker) is not Services:
        return None
    parts = []
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= end <= buffer.len or end - position < 4 + HEADER_SIZE:
            return None
        kind = u32(<const uint8_t *>buffer.buf + position + 4)
        while end - position >= 4 + HEADER_SIZE and count < max_together and total < turn_bytes:
            p = <const uint8_t *>buffer.buf + position
            size = i32(p)
            p += 4
            head = <int16_t>u16(p + 8)
            head = HEADER_SIZE + 1 if head < 0 else HEADER_SIZE + 1 + head
            if size < head or size > end - position - 4 or u32(p) != kind or p[head - 1]:
                break  # no such request, or one with tagged fields in its header
            answered = answer(p + head, size - head, version, i32(p + 4), broker, &now_ms, parts)
            if not answered:
                break
            total += answered
            count += 1
            position += 4 + size
        return (parts, count, position, total) if count else None
    finally:
        PyBuffer_Release(&buffer)


cdef int64_t answer(
    const uint8_t *body, Py_ssize_t length, int version, int32_t correlation_id, broker, int64_t *now_ms, list parts
) except -1:
    """Puts the answer into `parts` and returns its size without its length; 0 with nothing done for what is not that."""
    cdef FetchOfOne fetch
    cdef dict partitions, sessions
    cdef PyObject *key
    cdef PyObject *value
    cdef Py_ssize_t at = 0, count
    cdef int64_t high_watermark, log_start, base_offset, first_unstable, next_offset = 0, size
    cdef int32_t max_bytes, most
    cdef Region region
    cdef bytes topic_id
    cdef uint8_t[4 + HEAD_WITH_ID_BYTES] head
    cdef uint8_t *p
    if not parse_with_id(body, length, version, &fetch) or fetch.replica_id != consumer or fetch.last_fetched_epoch != NO_EPOCH:
        return 0
    topic_id = PyBytes_FromStringAndSize(<const char *>fetch.topic_id, 16)
    cluster = slot(broker, broker_cluster)
    replicas = slot(broker, broker_replicas)
    cache = slot(broker, broker_sessions)
    if type(cluster) is not MetadataCache or type(replicas) is not ReplicaManager or type(cache) is not FetchSessionCache:
        return 0
    name = (<dict?>slot(cluster, cluster_names)).get(topic_id)
    partitions = None if name is None else (<dict?>slot(replicas, replicas_partitions)).get(name)
    partition = None if partitions is None else partitions.get(fetch.partition)
    if type(partition) is not Partition or slot(partition, partition_is_leader) is not True:
        return 0
    if fetch.leader_epoch != NO_EPOCH and fetch.leader_epoch != number(partition, partition_leader_epoch):
        return 0
    log = slot(partition, partition_log)
    if type(log) is not PartitionLog or slot(log, log_topic_id) != topic_id:
        return 0
    session = None
    asked = None
    if fetch.session_epoch != final_epoch:
        session = (<dict?>slot(cache, cache_sessions)).get(fetch.session_id)
        if (
            type(session) is not FetchSession
            or number(session, session_epoch_at) != fetch.session_epoch
            or fetch.session_epoch == initial_epoch
            or slot(session, session_uses_ids) is not True
            or slot(session, session_watch) is not None
        ):
            return 0
        sessions = slot(session, session_partitions)
        if len(sessions) != 1 or not PyDict_Next(sessions, &at, &key, &value):
            return 0
        asked = <object>value
        if (
            type(asked) is not SessionPartition
            or number(asked, asked_partition) != fetch.partition
            or slot(asked, asked_topic_id) != topic_id
            or slot(asked, asked_name) != name
        ):
            return 0
    elif fetch.session_id != no_session:
        return 0  # it ends one

    # `log_read.read`, for who is neither at an end that it remembers nor near the high watermark.
    high_watermark = number(log, log_high_watermark)
    log_start = number(log, log_start_offset)
    producers = slot(log, log_producers)
    segment = slot(log, log_active_segment)
    if (
        high_watermark != number(log, log_end_offset)
        or not log_start <= fetch.fetch_offset < high_watermark
        or fetch.fetch_offset in <dict?>slot(log, log_hints)
        or type(producers) is not ProducerStateManager
        or type(segment) is not Segment
    ):
        return 0
    state = slot(producers, producers_state)
    if type(state) is not ProducerState:
        return 0
    first_unstable = number(state, state_first_unstable)
    base_offset = number(segment, segment_base_offset)
    file = slot(segment, segment_file)
    index = slot(segment, segment_index)
    if 0 <= first_unstable < high_watermark or fetch.fetch_offset < base_offset or type(file) is not RealFile or type(index) is not OffsetIndex:
        return 0
    entries = slot(index, index_tail)
    if type(entries) is not bytearray:
        return 0
    if PyByteArray_GET_SIZE(entries) and i32(<const uint8_t *>PyByteArray_AS_STRING(entries)) <= fetch.fetch_offset - base_offset:
        count = PyByteArray_GET_SIZE(entries) // ENTRY_SIZE
    else:
        count = number(index, index_written)
        if number(index, index_mapped) != count:
            return 0
        entries = slot(index, index_map)
    most = number(broker, broker_max_bytes)
    max_bytes = fetch.max_bytes if fetch.max_bytes < most else most
    most = fetch.partition_max_bytes if fetch.partition_max_bytes < max_bytes else max_bytes
    region = region_between(
        file, number(file, file_descriptor), entries, count, base_offset, number(segment, segment_size), fetch.fetch_offset, most, &next_offset
    )
    if region is None or region.length <= INLINE_BYTES:
        return 0
    if region.length < fetch.min_bytes and region.length < max_bytes and fetch.max_wait_ms > 0:
        return 0
    if fetch.isolation_level == read_committed:
        try:
            if log.aborted_transactions(fetch.fetch_offset, next_offset, False):
                return 0
        except (StorageError, ColdRead):
            return 0

    stats = slot(partition, partition_stats)
    if type(stats) is not TopicStats:
        return 0
    set_slot(stats, stats_requests, number(stats, stats_requests) + 1)
    set_slot(stats, stats_bytes_out, number(stats, stats_bytes_out) + region.length)
    if asked is not None:
        if now_ms[0] < 0:
            now_ms[0] = elapsed_ms(slot(broker, broker_clock))
        set_slot(session, session_epoch_at, 1 if fetch.session_epoch == INT32_MAX else fetch.session_epoch + 1)
        set_slot(session, session_last_used, now_ms[0])
        set_slot(asked, asked_offset, fetch.fetch_offset)
        set_slot(asked, asked_max_bytes, fetch.partition_max_bytes)
        set_slot(asked, asked_leader_epoch, fetch.leader_epoch)
        set_slot(asked, asked_last_epoch, NO_EPOCH)
        set_slot(asked, asked_start, fetch.log_start_offset)
        set_slot(asked, asked_high_watermark, high_watermark)
        set_slot(asked, asked_log_start, log_start)
    p = put_head_with_id(
        head + 4, correlation_id, fetch.session_id, fetch.topic_id, fetch.partition, high_watermark, high_watermark, log_start,
        fetch.isolation_level == read_committed, <uint32_t>region.length,
    )
    size = p - head - 4 + region.length + len(<bytes>end_of_answer)
    put32(head, <int32_t>size)
    parts.append(PyBytes_FromStringAndSize(<const char *>head, p - head))
    parts.append(region)
    parts.append(end_of_answer)
    return size
