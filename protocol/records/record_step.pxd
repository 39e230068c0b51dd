# Declares the functions of record_step.py in C for compiled callers. Every access is checked against the given end, which is checked once.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

ctypedef const uint8_t[::1] Bytes

cdef enum:
    INCOMPLETE_RECORD = -1
    OVERLONG_LENGTH = -2
    NEGATIVE_LENGTH = -3
    STRUCTURE_OF_RECORD = -4
    COUNT_OF_HEADERS = -5
    KEY_OF_HEADER = -6
    LENGTH_OF_RECORD = -7


# Reads a number before `end`. The position behind it is negative if it does not end there. Most numbers have one byte, or two.
cdef inline Py_ssize_t take_varint(const uint8_t *p, Py_ssize_t at, Py_ssize_t end, int64_t *number) noexcept nogil:
    cdef uint32_t raw
    cdef int shift = 7
    cdef uint8_t byte
    if at >= end:
        return INCOMPLETE_RECORD
    raw = p[at]
    at += 1
    if raw > 0x7F:
        raw &= 0x7F
        while True:
            if at >= end:
                return INCOMPLETE_RECORD
            byte = p[at]
            at += 1
            raw |= <uint32_t>(byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                return OVERLONG_LENGTH
    number[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return at

cdef inline Py_ssize_t take_varlong(const uint8_t *p, Py_ssize_t at, Py_ssize_t end, int64_t *number) noexcept nogil:
    cdef uint64_t raw
    cdef int shift = 7
    cdef uint8_t byte
    if at >= end:
        return INCOMPLETE_RECORD
    raw = p[at]
    at += 1
    if raw > 0x7F:
        raw &= 0x7F
        while True:
            if at >= end:
                return INCOMPLETE_RECORD
            byte = p[at]
            at += 1
            raw |= <uint64_t>(byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                return OVERLONG_LENGTH
    number[0] = <int64_t>((raw >> 1) ^ (~(raw & 1) + 1))
    return at

ctypedef (Py_ssize_t, int64_t, int64_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t, int64_t, Py_ssize_t) RecordFields
ctypedef (Py_ssize_t, Py_ssize_t, int64_t, Py_ssize_t, int64_t) HeaderFields

cdef inline RecordFields fault(Py_ssize_t kind, int64_t first, int64_t second) noexcept nogil:
    return kind, first, second, 0, 0, 0, 0, 0, 0, 0, 0

cdef inline HeaderFields take_header(const uint8_t *p, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef int64_t key_size, value_size
    cdef Py_ssize_t value_at, key_at = take_varint(p, at, end, &key_size)
    if key_at < 0 or key_size > end - key_at:
        return STRUCTURE_OF_RECORD, 0, 0, 0, 0
    if key_size < 0:
        return KEY_OF_HEADER, 0, key_size, 0, 0
    value_at = take_varint(p, key_at + key_size, end, &value_size)
    if value_at < 0 or value_size < -1 or value_size > end - value_at:
        return STRUCTURE_OF_RECORD, 0, 0, 0, 0
    return value_at + (value_size if value_size > 0 else 0), key_at, key_size, value_at, value_size

cdef inline RecordFields take_record(const uint8_t *p, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef int64_t size, elapsed, delta, key_size, value_size, headers, number
    cdef Py_ssize_t start, delta_at, body_at, key_at, value_at, headers_at
    cdef HeaderFields header
    start = take_varint(p, at, end, &size)
    if start < 0:
        return fault(start, 1, 0)
    if size < 0:
        return fault(NEGATIVE_LENGTH, size, 0)
    if size > end - start:
        return fault(INCOMPLETE_RECORD, size - (end - start), size)
    end = start + size
    delta_at = take_varlong(p, start + 1, end, &elapsed)
    if delta_at < 0:
        return fault(STRUCTURE_OF_RECORD, 0, 0)
    body_at = take_varint(p, delta_at, end, &delta)
    if body_at < 0:
        return fault(STRUCTURE_OF_RECORD, 0, 0)
    key_at = take_varint(p, body_at, end, &key_size)
    if key_at < 0 or key_size < -1 or key_size > end - key_at:
        return fault(STRUCTURE_OF_RECORD, 0, 0)
    value_at = take_varint(p, key_at + (key_size if key_size > 0 else 0), end, &value_size)
    if value_at < 0 or value_size < -1 or value_size > end - value_at:
        return fault(STRUCTURE_OF_RECORD, 0, 0)
    headers_at = take_varint(p, value_at + (value_size if value_size > 0 else 0), end, &headers)
    if headers_at < 0:
        return fault(STRUCTURE_OF_RECORD, 0, 0)
    if headers < 0 or headers > end - headers_at:
        return fault(COUNT_OF_HEADERS, headers, 0)
    at = headers_at
    for number in range(headers):
        header = take_header(p, at, end)
        at = header[0]
        if at < 0:
            return fault(at, header[2], 0)
    if at != end:
        return fault(LENGTH_OF_RECORD, end - start, at - start)
    return end, elapsed, delta, delta_at, body_at, key_at, key_size, value_at, value_size, headers, headers_at

cdef inline RecordFields read_record(Bytes data, Py_ssize_t at, Py_ssize_t end) noexcept:
    if not 0 <= at < end <= data.shape[0]:
        return fault(INCOMPLETE_RECORD, 1, 0)
    return take_record(&data[0], at, end)

cdef inline HeaderFields read_header(Bytes data, Py_ssize_t at, Py_ssize_t end) noexcept:
    if not 0 <= at < end <= data.shape[0]:
        return STRUCTURE_OF_RECORD, 0, 0, 0, 0
    return take_header(&data[0], at, end)

cdef inline int64_t wrapped_sum(int64_t number, int64_t other) noexcept:
    return <int64_t>(<uint64_t>number + <uint64_t>other)
