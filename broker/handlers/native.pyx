# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Produce requests of plain batches that came together, compiled, and the way to them.

Stands for `Dispatcher.handle_several` and `produce.handle_produce_frames`, which are the authority.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from protocol.big_endian cimport i32
from storage.slots cimport number, set_slot, slot, slot_of_type

from broker.handlers.data.partition_errors import partition_error
from broker.request.internal_topics import INTERNAL_TOPICS
from broker.request.services import Services
from protocol.compiled import compiled
from protocol.produce_fast_path import MAX_TOGETHER, encode_produce_responses, read_several
from replication.errors import ReplicationError
from replication.leader.partition import Partition
from replication.control.replica_manager import ReplicaManager
from replication.ports.topic_stats import TopicStats
from storage.errors import StorageError
from storage.log.partition_log import PartitionLog

cdef:
    Py_ssize_t max_together = MAX_TOGETHER
    object internal_topics = INTERNAL_TOPICS

    Py_ssize_t broker_clock = slot_of_type(Services, "clock")
    Py_ssize_t broker_replicas = slot_of_type(Services, "replica_manager")
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
    Py_ssize_t log_high_watermark = slot_of_type(PartitionLog, "high_watermark")
    Py_ssize_t log_end_offset = slot_of_type(PartitionLog, "log_end_offset")
    Py_ssize_t log_producers = slot_of_type(PartitionLog, "producer_state")


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
