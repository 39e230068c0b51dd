# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The byte work of Fetch and Produce of one partition, compiled.

Stands in for functions of `fetch_fast_path` and `produce_fast_path`, which are the authority; `tests/unit/test_compiled.py` holds both
equal. What is malformed or out of the ordinary is answered with None, as there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from protocol.big_endian cimport i32, i64, put16, put32, put64, put_varint, u16, u32

cdef enum:
    FIRST_WITHOUT_REPLICA_ID = 15
    FETCH_SIZE = 76
    FIRST_FLEXIBLE_PRODUCE = 9
    LAST_PRODUCE = 11
    MAX_TOGETHER = 16


cdef bint parse_with_id(const uint8_t *p, Py_ssize_t length, int version, FetchOfOne *fetch) noexcept nogil:
    """Whether the `length` bytes at `p` begin with the Fetch that `read_with_id` reads."""
    fetch.replica_id = -1
    if version < FIRST_WITHOUT_REPLICA_ID:
        if length < 4:
            return False
        fetch.replica_id = i32(p)
        p += 4
        length -= 4
    # One topic, one partition; behind it no tags, no forgotten topics, no rack.
    if length < FETCH_SIZE or p[21] != 2 or p[38] != 2 or memcmp(p + 71, b"\0\0\1\1\0", 5):
        return False
    fetch.max_wait_ms = i32(p)
    fetch.min_bytes = i32(p + 4)
    fetch.max_bytes = i32(p + 8)
    fetch.isolation_level = <int8_t>p[12]
    fetch.session_id = i32(p + 13)
    fetch.session_epoch = i32(p + 17)
    fetch.topic_id = p + 22
    fetch.partition = i32(p + 39)
    fetch.leader_epoch = i32(p + 43)
    fetch.fetch_offset = i64(p + 47)
    fetch.last_fetched_epoch = i32(p + 55)
    fetch.log_start_offset = i64(p + 59)
    fetch.partition_max_bytes = i32(p + 67)
    return True


def read_with_id(frame, Py_ssize_t offset, int version):
    """As in `fetch_fast_path`."""
    cdef Py_buffer buffer
    cdef FetchOfOne fetch
    PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= offset <= buffer.len or not parse_with_id(<const uint8_t *>buffer.buf + offset, buffer.len - offset, version, &fetch):
            return None
        return (
            fetch.replica_id, fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes, fetch.isolation_level, fetch.session_id,
            fetch.session_epoch, PyBytes_FromStringAndSize(<const char *>fetch.topic_id, 16), fetch.partition, fetch.leader_epoch,
            fetch.fetch_offset, fetch.last_fetched_epoch, fetch.log_start_offset, fetch.partition_max_bytes,
        )
    finally:
        PyBuffer_Release(&buffer)


cdef uint8_t *put_head_with_id(
    uint8_t *p, int32_t correlation_id, int32_t session_id, const uint8_t *topic_id, int32_t partition, int64_t high_watermark,
    int64_t last_stable_offset, int64_t log_start_offset, bint no_aborted_transactions, uint32_t size
) noexcept nogil:
    """Writes what `begin_response_with_id` gives, at most HEAD_WITH_ID_BYTES; where it ends."""
    p = put32(p, correlation_id)
    p[0] = 0
    p = put32(p + 1, 0)
    p = put16(p, 0)
    p = put32(p, session_id)
    p[0] = 2
    memcpy(p + 1, topic_id, 16)
    p[17] = 2
    p = put32(p + 18, partition)
    p = put16(p, 0)
    p = put64(p, high_watermark)
    p = put64(p, last_stable_offset)
    p = put64(p, log_start_offset)
    p[0] = 1 if no_aborted_transactions else 0
    p = put32(p + 1, -1)
    return put_varint(p, size + 1)


def begin_response_with_id(
    int32_t correlation_id,
    int32_t session_id,
    bytes topic_id not None,
    int32_t partition,
    int64_t high_watermark,
    int64_t last_stable_offset,
    int64_t log_start_offset,
    bint no_aborted_transactions,
    uint32_t size,
):
    """As in `fetch_fast_path`."""
    cdef uint8_t[HEAD_WITH_ID_BYTES] out
    if len(topic_id) != 16:
        raise ValueError("a topic id has 16 bytes")
    cdef uint8_t *end = put_head_with_id(
        out, correlation_id, session_id, <const uint8_t *>PyBytes_AS_STRING(topic_id), partition, high_watermark, last_stable_offset,
        log_start_offset, no_aborted_transactions, size,
    )
    return PyBytes_FromStringAndSize(<const char *>out, end - out)


def read_several(dict heads not None, view, Py_ssize_t position, Py_ssize_t end):
    """`produce_fast_path.read_several`; `heads` are the flexible ones that it knows."""
    cdef Py_buffer buffer
    cdef const uint8_t *data
    cdef const uint8_t *frame
    cdef const uint8_t *first
    cdef Py_ssize_t before, length, p, after, behind, last
    cdef uint32_t size
    cdef int version, count = 0
    cdef list batches, correlation_ids
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>buffer.buf
        if position < 0 or end > buffer.len or end - position < 14:
            return None
        frame = data + position
        version = u16(frame + 6)
        before = <int16_t>u16(frame + 12)
        before = 3 if before < 0 else 3 + before  # the client id, and no tagged fields of the header
        p = position + 12 + before
        if u16(frame + 4) or not FIRST_FLEXIBLE_PRODUCE <= version <= LAST_PRODUCE or p + 8 >= end or data[p - 1]:
            return None
        length = before + 13 + data[p + 8]
        last = end - length - 16  # where a frame can begin
        if position > last:
            return None
        first = frame
        head = heads.get(PyBytes_FromStringAndSize(<const char *>first + 12 + before, length - before))
        if head is None:
            return None
        batches = []
        correlation_ids = []
        while True:
            frame = data + position
            after = position + 4 + i32(frame)
            if after > end or memcmp(frame + 4, first + 4, 4) or memcmp(frame + 12, first + 12, length):
                break
            p = position + length + 13
            size = data[p - 1]
            if size > 127:
                size += (<uint32_t>data[p] << 7) - 128
                p += 1
                if size > 16383:
                    size += (<uint32_t>data[p] << 14) - 16384
                    p += 1
                    if size > 2097151:
                        break
            behind = p + <Py_ssize_t>size - 1
            if not size or behind + 3 > after or data[behind] | data[behind + 1] | data[behind + 2]:
                break
            batches.append(view[p:behind])
            correlation_ids.append(i32(frame + 8))
            count += 1
            position = after
            if position > last or count == MAX_TOGETHER:
                break
        return (head, batches, correlation_ids, position) if count > 1 else None
    finally:
        PyBuffer_Release(&buffer)


def pack_responses(
    pack, bytes head not None, bytes tail not None, list correlation_ids not None, int32_t partition, list base_offsets not None,
    int64_t log_start_offset,
):
    """`produce_fast_path._pack_responses`."""
    cdef uint8_t out[320]
    cdef uint8_t *p
    cdef uint8_t *packed
    cdef Py_ssize_t head_size = len(head), tail_size = len(tail), size = head_size + tail_size + 43, count = len(correlation_ids), i
    if size > <Py_ssize_t>sizeof(out) or len(base_offsets) != count:
        raise ValueError("what no response holds")
    answers = PyBytes_FromStringAndSize(NULL, count * size)
    packed = <uint8_t *>PyBytes_AS_STRING(answers)
    p = put32(out, <int32_t>(size - 4)) + 4
    memcpy(p, PyBytes_AS_STRING(head), head_size)
    p = put32(p + head_size, partition)
    p = put16(p, 0)
    p = put64(p + 8, -1)
    p = put64(p, log_start_offset)
    memcpy(p, PyBytes_AS_STRING(tail), tail_size)
    p = put32(p + tail_size, 0)
    p[0] = 0
    for i in range(count):
        put32(out + 4, correlation_ids[i])
        put64(out + 14 + head_size, base_offsets[i])
        memcpy(packed, out, size)
        packed += size
    return answers
