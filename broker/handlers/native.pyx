# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""From a frame to the answer, compiled: the dispatcher's way to handlers of frames, and Fetch of one partition by who has far to read.

Stands before `Dispatcher.handle` and `fetch_one_partition.handle_fetch_frame`, which are the authority and get whatever is not that.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from protocol.big_endian cimport i32, i64, put16, put32, put64, put_varint, u16
from storage.native cimport Region

from storage.file_region import FileRegion
from storage.native import between_entries

if not issubclass(FileRegion, Region):
    raise ImportError("lookups give regions that were not compiled")

cdef enum:
    HEADER_SIZE = 10
    FETCH_SIZE = 76
    FIRST_VERSION_WITH_IDS = 13
    FIRST_WITHOUT_REPLICA_ID = 15
    CONSUMER = -1
    NO_SESSION = 0
    INITIAL_EPOCH = 0
    FINAL_EPOCH = -1
    READ_COMMITTED = 1
    NO_EPOCH = -1

cdef object ordinary_handle = None
cdef object ordinary_fetch = None
cdef object elapsed_ms = None
cdef type file_type = None
cdef object end_of_answer = None


def dispatch_before(handle):
    """`Dispatcher.handle`, for what `handle` leaves to it."""
    global ordinary_handle
    ordinary_handle = handle


def fetch_before(handle_fetch_frame, elapsed, type of_files not None, bytes end not None):
    """`fetch_one_partition.handle_fetch_frame`, for what is left to it; `elapsed_ms`; the class of files with descriptors; END_WITH_ID.

    Returns the function before it.
    """
    global ordinary_fetch, elapsed_ms, file_type, end_of_answer
    previous = ordinary_fetch
    ordinary_fetch = handle_fetch_frame
    elapsed_ms = elapsed
    file_type = of_files
    end_of_answer = end
    return previous


def handle(self, frame, connection):
    """`Dispatcher.handle`."""
    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef Py_ssize_t offset = 0
    cdef int client_id_length = 0
    cdef int32_t correlation_id = 0
    route = None
    PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len >= HEADER_SIZE:
            p = <const uint8_t *>buffer.buf
            correlation_id = i32(p + 4)
            client_id_length = <int16_t>u16(p + 8)
            offset = HEADER_SIZE + client_id_length if client_id_length > 0 else HEADER_SIZE
            if offset < buffer.len:
                route = (<dict?>self._routes).get(i32(p))
                if route is not None and route.flexible_request_header:
                    if p[offset]:
                        route = None
                    offset += 1
    finally:
        PyBuffer_Release(&buffer)
    if route is None:
        return ordinary_handle(self, frame, connection)
    frame_handler = route.frame_handler
    count = route.requests + 1
    if frame_handler is None or count == route.sample_at:
        return ordinary_handle(self, frame, connection)
    route.requests = count
    try:
        answer = frame_handler(frame, offset, route.version, correlation_id, connection, self._services)
    except Exception as error:
        return self._unexpected(route, self._context(route, correlation_id, None, connection), error)
    if answer is not None:
        return answer
    return self._decode_and_handle(frame, offset, client_id_length, correlation_id, route, connection)


def handle_fetch_frame(frame, Py_ssize_t offset, int version, int32_t correlation_id, connection, broker):
    """As in `fetch_one_partition`."""
    cdef Py_buffer buffer
    cdef list answer = None
    cdef Py_ssize_t size = FETCH_SIZE
    if version >= FIRST_VERSION_WITH_IDS:
        if version < FIRST_WITHOUT_REPLICA_ID:
            size += 4
        PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
        try:
            if 0 <= offset <= buffer.len - size:
                answer = answer_of(<const uint8_t *>buffer.buf + offset, version, correlation_id, broker)
        finally:
            PyBuffer_Release(&buffer)
    return ordinary_fetch(frame, offset, version, correlation_id, connection, broker) if answer is None else answer


cdef list answer_of(const uint8_t *p, int version, int32_t correlation_id, broker):
    """The answer, or None with nothing done."""
    cdef int32_t max_wait_ms, min_bytes, max_bytes, session_id, session_epoch, index, leader_epoch, partition_max_bytes, most
    cdef int64_t fetch_offset, high_watermark, log_start_offset, base_offset, first_unstable
    cdef bint read_committed
    cdef bytes topic
    cdef dict partitions
    cdef Region region
    if version < FIRST_WITHOUT_REPLICA_ID:
        if i32(p) != CONSUMER:
            return None
        p += 4
    # One topic, one partition; no epoch of what was fetched last; behind it no tags, no forgotten topics, no rack.
    if p[21] != 2 or p[38] != 2 or i32(p + 55) != NO_EPOCH or memcmp(p + 71, b"\0\0\1\1\0", 5):
        return None
    max_wait_ms = i32(p)
    min_bytes = i32(p + 4)
    max_bytes = i32(p + 8)
    read_committed = <int8_t>p[12] == READ_COMMITTED
    session_id = i32(p + 13)
    session_epoch = i32(p + 17)
    topic = PyBytes_FromStringAndSize(<const char *>p + 22, 16)
    index = i32(p + 39)
    leader_epoch = i32(p + 43)
    fetch_offset = i64(p + 47)
    partition_max_bytes = i32(p + 67)

    name = (<dict?>broker.cluster.names_by_id).get(topic)
    if name is None:
        return None
    partitions = broker.replica_manager.partitions.get(name)
    partition = None if partitions is None else partitions.get(index)
    if partition is None or not partition.is_leader or (leader_epoch != NO_EPOCH and leader_epoch != <int32_t>partition.leader_epoch):
        return None
    log = partition.log
    if log.topic_id != topic:
        return None
    asked = None
    if session_epoch != FINAL_EPOCH:
        session = broker.fetch_sessions.sessions.get(session_id)
        if (
            session is None
            or <int32_t>session.epoch != session_epoch
            or session_epoch == INITIAL_EPOCH
            or len(<dict?>session.partitions) != 1
            or session.watch is not None
        ):
            return None
        asked = (<dict>session.partitions).get((topic, index))
        if asked is None or asked.name != name:
            return None
    elif session_id != NO_SESSION:
        return None  # it ends one

    # `log.read` for who reads on where neither a hint nor the high watermark is in the way, and the lookup that it begins with then.
    high_watermark = log.high_watermark
    log_start_offset = log.log_start_offset
    first_unstable = log.producer_state.state.first_unstable_offset
    if (
        high_watermark != <int64_t>log.log_end_offset
        or 0 <= first_unstable < high_watermark
        or not log_start_offset <= fetch_offset < high_watermark
        or fetch_offset in <dict?>log.read_hints
    ):
        return None
    segment = log.active_segment
    base_offset = segment.base_offset
    file = segment._file
    entries = segment._offset_index
    if fetch_offset < base_offset or type(file) is not file_type or entries is None or entries._mapped != entries._written:
        return None
    most = broker.fetch_max_bytes
    if max_bytes < most:
        most = max_bytes
    max_bytes = most
    if partition_max_bytes < most:
        most = partition_max_bytes
    found = between_entries(file, entries._map, entries._written, base_offset, segment.size, fetch_offset, most)
    if found is None:
        return None
    region = (<tuple>found)[0]
    if region.length < min_bytes and region.length < max_bytes and max_wait_ms > 0:
        return None
    if read_committed and log.aborted_transactions(fetch_offset, (<tuple>found)[1], False):
        return None

    stats = partition.stats
    stats.fetch_requests += 1
    stats.bytes_out += region.length
    if asked is not None:
        broker.fetch_sessions.advance(session_id, elapsed_ms(broker.clock))
        asked.offset = fetch_offset
        asked.max_bytes = partition_max_bytes
        asked.leader_epoch = leader_epoch
        asked.last_fetched_epoch = NO_EPOCH
        asked.start = i64(p + 59)
        asked.high_watermark = high_watermark
        asked.log_start_offset = log_start_offset
    return [
        head_of(correlation_id, session_id, p + 22, index, high_watermark, log_start_offset, read_committed, region.length),
        region,
        end_of_answer,
    ]


cdef bytes head_of(
    int32_t correlation_id,
    int32_t session_id,
    const uint8_t *topic,
    int32_t index,
    int64_t high_watermark,
    int64_t log_start_offset,
    bint read_committed,
    int64_t size,
):
    """`fetch_fast_path.begin_response_with_id`, where the last stable offset is the high watermark."""
    cdef uint8_t out[80]
    cdef uint8_t *p = out
    p = put32(p, correlation_id)
    p[0] = 0
    p = put32(p + 1, 0)
    p = put16(p, 0)
    p = put32(p, session_id)
    p[0] = 2
    memcpy(p + 1, topic, 16)
    p[17] = 2
    p = put32(p + 18, index)
    p = put16(p, 0)
    p = put64(p, high_watermark)
    p = put64(p, high_watermark)
    p = put64(p, log_start_offset)
    p[0] = 1 if read_committed else 0
    p = put32(p + 1, -1)
    p = put_varint(p, <int32_t>size + 1)
    return PyBytes_FromStringAndSize(<const char *>out, p - out)
