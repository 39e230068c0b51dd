# Declares the functions of message_fields.py in C for compiled callers. Every access is checked against the length of the buffer.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from ottla.protocol.cursors.fields cimport View, check, place, set32, set64

cdef extern from "<endian.h>" nogil:
    uint64_t le64toh(uint64_t)

ctypedef const uint32_t[::1] Tables

# Bytes whose copy or checksum takes so long that other threads should run meanwhile.
cdef enum:
    LONG_BYTES = 65536

cdef inline void copy_value(uint8_t *to, const uint8_t *value, Py_ssize_t size) noexcept:
    if size > LONG_BYTES:
        with nogil:
            memcpy(to, value, size)
    else:
        memcpy(to, value, size)


cdef inline uint32_t eight(const uint32_t *table, uint64_t word) noexcept nogil:
    return (table[1792 + (word & 0xFF)] ^ table[1536 + (word >> 8 & 0xFF)] ^ table[1280 + (word >> 16 & 0xFF)]
            ^ table[1024 + (word >> 24 & 0xFF)] ^ table[768 + (word >> 32 & 0xFF)] ^ table[512 + (word >> 40 & 0xFF)]
            ^ table[256 + (word >> 48 & 0xFF)] ^ table[word >> 56])

# Sixteen bytes at a time, each by a table of its own ("slicing by 16").
cdef inline uint32_t covered(const uint32_t *table, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
    cdef uint64_t word, following
    while size >= 16:
        memcpy(&word, p, 8)
        memcpy(&following, p + 8, 8)
        crc = eight(table + 2048, le64toh(word) ^ crc) ^ eight(table, le64toh(following))
        p += 16
        size -= 16
    if size >= 8:
        memcpy(&word, p, 8)
        crc = eight(table, le64toh(word) ^ crc)
        p += 8
        size -= 8
    while size > 0:
        crc = crc >> 8 ^ table[(crc ^ p[0]) & 0xFF]
        p += 1
        size -= 1
    return ~crc

cdef inline const uint32_t *first(Tables tables) except NULL:
    if tables.shape[0] != 4096:
        raise IndexError("there are sixteen tables of 256 numbers")
    return &tables[0]

cdef inline int64_t checksum(Tables tables, View data, Py_ssize_t start, Py_ssize_t end) except -1:
    cdef const uint32_t *table = first(tables)
    cdef const uint8_t *p
    cdef uint32_t crc
    check(data, start, end - start)
    if end <= start:
        return 0
    p = &data[start]
    if end - start > LONG_BYTES:
        with nogil:
            crc = covered(table, p, end - start)
    else:
        crc = covered(table, p, end - start)
    return crc

cdef inline Py_ssize_t put_message(Tables tables, bytearray room, Py_ssize_t at, int64_t offset, int64_t magic, int64_t attributes, int64_t timestamp, View data, Py_ssize_t key_at, int64_t key_size, Py_ssize_t value_at, int64_t value_size) except -1:
    cdef const uint32_t *table = first(tables)
    cdef Py_ssize_t key_bytes = key_size if key_size > 0 else 0
    cdef Py_ssize_t value_bytes = value_size if value_size > 0 else 0
    check(data, key_at, key_bytes)
    check(data, value_at, value_bytes)
    cdef Py_ssize_t size = (34 if magic else 26) + key_bytes + value_bytes
    cdef uint8_t *start = place(room, at, size)
    cdef uint8_t *p = start + 18
    set64(start, offset)
    set32(start + 8, size - 12)
    start[16] = <uint8_t>magic
    start[17] = <uint8_t>attributes
    if magic:
        set64(p, timestamp)
        p += 8
    set32(p, key_size if key_size > 0 else key_size >> 63)
    p += 4
    if key_bytes:
        copy_value(p, &data[key_at], key_bytes)
        p += key_bytes
    set32(p, value_size if value_size > 0 else value_size >> 63)
    if value_bytes:
        copy_value(p + 4, &data[value_at], value_bytes)
    cdef uint32_t crc
    if size > LONG_BYTES:
        with nogil:
            crc = covered(table, start + 16, size - 16)
    else:
        crc = covered(table, start + 16, size - 16)
    set32(start + 12, crc)
    return at + size

cdef inline uint8_t *write_varlong(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while raw > 0x7F:
        p[0] = <uint8_t>(raw & 0x7F | 0x80)
        raw >>= 7
        p += 1
    p[0] = <uint8_t>raw
    return p + 1

cdef inline Py_ssize_t varlong_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef Py_ssize_t size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size

cdef inline Py_ssize_t put_record(bytearray room, Py_ssize_t at, int64_t elapsed, int64_t delta, View data, Py_ssize_t key_at, int64_t key_size, Py_ssize_t value_at, int64_t value_size) except -1:
    cdef Py_ssize_t key_bytes = key_size if key_size > 0 else 0
    cdef Py_ssize_t value_bytes = value_size if value_size > 0 else 0
    check(data, key_at, key_bytes)
    check(data, value_at, value_bytes)
    cdef int64_t length = 2 + varlong_size(elapsed) + varlong_size(delta) + varlong_size(key_size) + varlong_size(value_size) + key_bytes + value_bytes
    cdef Py_ssize_t size = varlong_size(length) + length
    cdef uint8_t *p = write_varlong(place(room, at, size), length)
    p[0] = 0
    p = write_varlong(p + 1, elapsed)
    p = write_varlong(p, delta)
    p = write_varlong(p, key_size)
    if key_bytes:
        copy_value(p, &data[key_at], key_bytes)
        p += key_bytes
    p = write_varlong(p, value_size)
    if value_bytes:
        copy_value(p, &data[value_at], value_bytes)
        p += value_bytes
    p[0] = 0
    return at + size
