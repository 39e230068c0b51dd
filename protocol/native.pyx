# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The byte work of Produces that came together, compiled.

Stands in for functions of `produce_fast_path`, which is the authority; `tests/unit/test_compiled.py` holds both
equal. What is malformed or out of the ordinary is answered with None, as there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from protocol.big_endian cimport i32, i64, put16, put32, put64, put_varint, u16, u32

cdef enum:
    FIRST_FLEXIBLE_PRODUCE = 9
    LAST_PRODUCE = 11
    MAX_TOGETHER = 16


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
