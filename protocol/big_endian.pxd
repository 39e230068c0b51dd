# Numbers as the wire and the log hold them: big-endian, at any address.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from "<endian.h>" nogil:
    uint16_t be16toh(uint16_t)
    uint32_t be32toh(uint32_t)
    uint64_t be64toh(uint64_t)


cdef inline uint16_t u16(const uint8_t *p) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, p, 2)
    return be16toh(value)


cdef inline uint32_t u32(const uint8_t *p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return be32toh(value)


cdef inline int32_t i32(const uint8_t *p) noexcept nogil:
    return <int32_t>u32(p)


cdef inline int64_t i64(const uint8_t *p) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, p, 8)
    return <int64_t>be64toh(value)


cdef inline uint8_t *put16(uint8_t *p, int16_t number) noexcept nogil:
    cdef uint16_t value = be16toh(<uint16_t>number)
    memcpy(p, &value, 2)
    return p + 2


cdef inline uint8_t *put32(uint8_t *p, int32_t number) noexcept nogil:
    cdef uint32_t value = be32toh(<uint32_t>number)
    memcpy(p, &value, 4)
    return p + 4


cdef inline uint8_t *put64(uint8_t *p, int64_t number) noexcept nogil:
    cdef uint64_t value = be64toh(<uint64_t>number)
    memcpy(p, &value, 8)
    return p + 8


cdef inline uint8_t *put_varint(uint8_t *p, uint32_t value) noexcept nogil:
    while value > 127:
        p[0] = <uint8_t>(value | 128)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1
