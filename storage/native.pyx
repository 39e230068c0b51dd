# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Lookups of a read, and the check of plain batches, compiled.

Stands in for functions of `segment_search` and `plain_append`, which are the authority; `tests/unit/test_compiled.py` holds both equal.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t

from protocol.big_endian cimport i32, i64, put32, put64, u16, u32
from storage.cached_read cimport read_cached

from protocol.checksum import crc32c

INTERFACE = 2

cdef enum:
    ENTRY_SIZE = 8
    POSITION = 4
    BOUNDS_SIZE = 27
    LOG_OVERHEAD = 12
    HEADER_SIZE = 61
    ATTRIBUTES_OFFSET = 21
    CURRENT_MAGIC = 2
    ZSTD = 4
    FIRST_VERSION_WITH_ZSTD = 7
    WALK_MAX_RECORDS = 4
    MIN_RECORD_BYTES = 7

cdef uint32_t[5] BODY_MASK = [0, 0xFFFFFF00, 0, 0xFFFFFFFF, 0xFFFFFFFF]
cdef uint32_t[5] BODY_MAGIC = [0, 0x1F8B0800, 0, 0x04224D18, 0x28B52FFD]


cdef Py_ssize_t slot_of(const uint8_t *entries, Py_ssize_t count, int field, int64_t target) noexcept nogil:
    """The slot of the last entry whose field is at most `target`, -1 unless one behind it is larger. Guesses along straight lines."""
    cdef Py_ssize_t low = 0, high = count - 1, guess
    cdef int64_t below, above
    cdef int tries = 8
    if count < 2:
        return -1
    below = i32(entries + field)
    above = i32(entries + high * ENTRY_SIZE + field)
    if target < below or target >= above:
        return -1
    while high - low > 1:
        if tries and above > below:
            tries -= 1
            guess = low + (target - below) * (high - low) // (above - below)
            guess = low + 1 if guess <= low else high - 1 if guess >= high else guess
        else:
            guess = (low + high) // 2
        if i32(entries + guess * ENTRY_SIZE + field) <= target:
            low = guess
            below = i32(entries + guess * ENTRY_SIZE + field)
            if i32(entries + (low + 1) * ENTRY_SIZE + field) > target:
                break
        else:
            high = guess
            above = i32(entries + guess * ENTRY_SIZE + field)
    return low


cdef bint read_bounds(int fd, int64_t base_offset, int64_t size, int64_t entry_offset, int64_t position, int64_t *first, int64_t *last) noexcept nogil:
    """First and last offset of the batch at `position`; whether it is the one of the entry that leads there."""
    cdef uint8_t header[BOUNDS_SIZE]
    if not 0 < position <= size - HEADER_SIZE or read_cached(fd, header, BOUNDS_SIZE, position) != BOUNDS_SIZE:
        return False
    first[0] = i64(header)
    last[0] = first[0] + i32(header + 23)
    return header[16] == CURRENT_MAGIC and base_offset <= first[0] <= last[0] <= entry_offset and position + i32(header + 8) < size


def between_entries(entries, Py_ssize_t count, int64_t base_offset, int64_t size, int fd, int64_t offset, int64_t max_bytes):
    """`segment_search.between_entries`, of the `count` entries of an offset index that are in its file, and the log file `fd`.

    None also where that would wait for the disk. No other thread is let in between: a system call takes a fraction of what that does.
    """
    cdef Py_buffer buffer
    cdef const uint8_t *data
    cdef const uint8_t *entry
    cdef Py_ssize_t slot
    cdef int64_t position, end, cut, first, last
    PyObject_GetBuffer(entries, &buffer, PyBUF_SIMPLE)
    try:
        if count > buffer.len // ENTRY_SIZE or max_bytes < 0 or max_bytes > size:
            return None
        data = <const uint8_t *>buffer.buf
        slot = slot_of(data, count, 0, offset - base_offset)
        if slot < 0:
            return None
        entry = data + (slot + 1) * ENTRY_SIZE
        position = i32(entry + POSITION)
        cut = position + max_bytes
        if (
            cut >= size
            or not read_bounds(fd, base_offset, size, base_offset + i32(entry), position, &first, &last)
            or not first <= offset <= last
        ):
            return None
        slot = slot_of(data, count, POSITION, cut)
        if slot < 0:
            return None
        entry = data + slot * ENTRY_SIZE
        end = i32(entry + POSITION)
        if (
            end <= position
            or cut - end > max_bytes // 4
            or not read_bounds(fd, base_offset, size, base_offset + i32(entry), end, &first, &last)
            or first <= offset
        ):
            return None
        return position, end - position, first
    finally:
        PyBuffer_Release(&buffer)


cdef bint has_lengths(const uint8_t *p, const uint8_t *end, int64_t count, int64_t base_timestamp, int64_t max_timestamp) noexcept nogil:
    """Whether records of small deltas and lengths add up to the body, and the latest has that timestamp. False: `walk_lengths` is to look."""
    cdef int64_t latest = INT64_MIN, length, delta
    while count:
        count -= 1
        if end - p < MIN_RECORD_BYTES:
            return False
        length = p[0]
        p += 1
        if length > 127:
            if p[0] > 127:
                return False
            length += (<int64_t>p[0] << 7) - 128
            p += 1
        length = (length >> 1) ^ -(length & 1)
        if p[1] > 127:
            return False
        delta = (p[1] >> 1) ^ -<int64_t>(p[1] & 1)
        if delta > latest:
            latest = delta
        if length < MIN_RECORD_BYTES - 1 or length > end - p:
            return False
        p += length
    return p == end and -1 <= base_timestamp < INT64_MAX - 256 and -1 <= base_timestamp + latest == max_timestamp


cdef tuple header_of(records, int64_t max_message_bytes, int api_version):
    """(record count, largest timestamp, producer id, epoch, base sequence), or None."""
    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef unsigned int codec
    cdef int64_t count
    PyObject_GetBuffer(records, &buffer, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>buffer.buf
        if buffer.len < HEADER_SIZE + 4 or buffer.len > max_message_bytes:
            return None
        codec = u16(p + 21)
        count = i32(p + 57)
        if (
            i32(p + 8) != buffer.len - LOG_OVERHEAD
            or p[16] != CURRENT_MAGIC
            or i64(p)
            or codec > ZSTD
            or count <= 0
            or count != <int64_t>i32(p + 23) + 1
        ):
            return None
        if codec:
            if (u32(p + 61) & BODY_MASK[codec]) != BODY_MAGIC[codec] or (codec == ZSTD and api_version < FIRST_VERSION_WITH_ZSTD):
                return None
        elif count > WALK_MAX_RECORDS:
            if count * MIN_RECORD_BYTES > buffer.len - HEADER_SIZE:
                return None
        elif not has_lengths(p + HEADER_SIZE, p + buffer.len, count, i64(p + 27), i64(p + 35)):
            return None
        if crc32c(records[ATTRIBUTES_OFFSET:]) != u32(p + 17):
            return None
        return count, i64(p + 35), i64(p + 43), <int16_t>u16(p + 51), i32(p + 53)
    finally:
        PyBuffer_Release(&buffer)


def read_plain(records, rules, int api_version):
    """`plain_append._read_plain`, but for None where that raises InvalidRecord."""
    return header_of(records, rules.max_message_bytes, api_version)


def read_several_plain(list batches not None, int64_t end_offset, rules, int api_version):
    """`plain_append._read_several_plain`, with the same exception."""
    cdef list headers = [], first_offsets = [], placed = []
    cdef int64_t total = 0, newest = -1, max_timestamp
    cdef bint has_producer = False
    cdef Py_ssize_t size
    cdef int64_t max_message_bytes = rules.max_message_bytes
    for records in batches:
        header = header_of(records, max_message_bytes, api_version)
        if header is None:
            return None
        size = len(records)
        max_timestamp = header[1]
        has_producer |= <int64_t>header[2] >= 0
        headers.append(header)
        first_offsets.append(end_offset)
        end_offset += <int64_t>header[0]
        placed.append((size, end_offset - 1, max_timestamp))
        total += size
        if max_timestamp > newest:
            newest = max_timestamp
    return headers, first_offsets, placed, end_offset, newest, total, has_producer


def stamp_several(list batches not None, list first_offsets not None, int32_t leader_epoch):
    """`plain_append._stamp_several`."""
    cdef Py_buffer buffer
    cdef uint8_t *p
    cdef Py_ssize_t i
    for i in range(len(batches)):
        PyObject_GetBuffer(batches[i], &buffer, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            if buffer.len >= HEADER_SIZE:
                p = put64(<uint8_t *>buffer.buf, first_offsets[i])
                put32(put32(p, <int32_t>(buffer.len - LOG_OVERHEAD)), leader_epoch)
        finally:
            PyBuffer_Release(&buffer)
