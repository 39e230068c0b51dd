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

# Headers of a record from which on other threads run while they are read: 3 ms. One record of 128 MiB may have 64 million empty ones.
cdef enum:
    MANY_HEADERS = 524288

# Reads so many headers. Returns the position behind them, or the kind of a fault, whose number goes into `told`.
cdef inline Py_ssize_t take_headers(const uint8_t *p, Py_ssize_t at, Py_ssize_t end, int64_t count, int64_t *told) noexcept nogil:
    cdef HeaderFields header
    cdef int64_t number
    for number in range(count):
        header = take_header(p, at, end)
        at = header[0]
        if at < 0:
            told[0] = header[2]
            break
    return at

cdef struct Record:
    int64_t elapsed, delta, key_size, value_size, headers
    Py_ssize_t delta_at, body_at, key_at, value_at, headers_at

# Reads the record at `at`. Returns its end, or the kind of its fault, with the numbers for `record_error` in `elapsed` and `delta`.
cdef inline Py_ssize_t take_record(const uint8_t *p, Py_ssize_t at, Py_ssize_t end, Record *found) noexcept:
    cdef int64_t size
    cdef Py_ssize_t start, key_at, value_at
    found.elapsed = 1
    found.delta = 0
    start = take_varint(p, at, end, &size)
    if start < 0:
        return start
    if size < 0:
        found.elapsed = size
        return NEGATIVE_LENGTH
    if size > end - start:
        found.elapsed = size - (end - start)
        found.delta = size
        return INCOMPLETE_RECORD
    end = start + size
    found.delta_at = take_varlong(p, start + 1, end, &found.elapsed)
    if found.delta_at < 0:
        return STRUCTURE_OF_RECORD
    found.body_at = take_varint(p, found.delta_at, end, &found.delta)
    if found.body_at < 0:
        return STRUCTURE_OF_RECORD
    found.key_at = key_at = take_varint(p, found.body_at, end, &size)
    if key_at < 0 or size < -1 or size > end - key_at:
        return STRUCTURE_OF_RECORD
    found.key_size = size
    found.value_at = value_at = take_varint(p, key_at + (size if size > 0 else 0), end, &size)
    if value_at < 0 or size < -1 or size > end - value_at:
        return STRUCTURE_OF_RECORD
    found.value_size = size
    found.headers_at = at = take_varint(p, value_at + (size if size > 0 else 0), end, &size)
    if at < 0:
        return STRUCTURE_OF_RECORD
    found.headers = size
    if size:
        if size < 0 or size > end - at:
            found.elapsed = size
            return COUNT_OF_HEADERS
        if size > MANY_HEADERS:
            with nogil:
                at = take_headers(p, at, end, size, &found.elapsed)
        else:
            at = take_headers(p, at, end, size, &found.elapsed)
        if at < 0:
            return at
    if at != end:
        found.elapsed = end - start
        found.delta = at - start
        return LENGTH_OF_RECORD
    return end

cdef inline RecordFields read_record(Bytes data, Py_ssize_t at, Py_ssize_t end) noexcept:
    cdef Record found
    if not 0 <= at < end <= data.shape[0]:
        return fault(INCOMPLETE_RECORD, 1, 0)
    end = take_record(&data[0], at, end, &found)
    if end < 0:
        return fault(end, found.elapsed, found.delta)
    return (end, found.elapsed, found.delta, found.delta_at, found.body_at, found.key_at, found.key_size, found.value_at, found.value_size,
            found.headers, found.headers_at)

cdef inline (Py_ssize_t, int64_t, int64_t, int64_t) check_record(Bytes data, Py_ssize_t at, Py_ssize_t end) noexcept:
    cdef Record found
    if not 0 <= at < end <= data.shape[0]:
        return INCOMPLETE_RECORD, 1, 0, 0
    found.key_size = 0
    end = take_record(&data[0], at, end, &found)
    return end, found.elapsed, found.delta, found.key_size

cdef inline HeaderFields read_header(Bytes data, Py_ssize_t at, Py_ssize_t end) noexcept:
    if not 0 <= at < end <= data.shape[0]:
        return STRUCTURE_OF_RECORD, 0, 0, 0, 0
    return take_header(&data[0], at, end)

cdef inline int64_t wrapped_sum(int64_t number, int64_t other) noexcept:
    return <int64_t>(<uint64_t>number + <uint64_t>other)
