# Declares the functions of fields.py in C for compiled callers. Every access is checked against the length of the buffer.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

# As in Cython's cpython.bytes and cpython.bytearray, which bring ten times as much into each module.
cdef extern from "Python.h":
    char *PyByteArray_AS_STRING(object)
    bytearray PyByteArray_FromStringAndSize(const char *, Py_ssize_t)
    Py_ssize_t PyByteArray_GET_SIZE(object)
    int PyByteArray_Resize(object, Py_ssize_t) except -1
    char *PyBytes_AS_STRING(object)
    bytes PyBytes_FromStringAndSize(const char *, Py_ssize_t)
    Py_ssize_t PyBytes_GET_SIZE(object)

cdef extern from "<endian.h>" nogil:
    uint16_t be16toh(uint16_t)
    uint32_t be32toh(uint32_t)
    uint64_t be64toh(uint64_t)
    uint16_t htobe16(uint16_t)
    uint32_t htobe32(uint32_t)
    uint64_t htobe64(uint64_t)

ctypedef uint8_t[::1] View


cdef inline int check(View data, Py_ssize_t at, Py_ssize_t size) except -1:
    if at < 0 or size < 0 or size > data.shape[0] - at:
        raise IndexError("the frame ends too early")
    return 0

cdef inline uint8_t *place(bytearray room, Py_ssize_t at, Py_ssize_t size) except NULL:
    if room is None or at < 0 or size < 0 or size > PyByteArray_GET_SIZE(room) - at:
        raise IndexError("the room for the response is too small")
    return <uint8_t *>PyByteArray_AS_STRING(room) + at

cdef inline int16_t get16(const uint8_t *p) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, p, 2)
    return <int16_t>be16toh(value)

cdef inline int32_t get32(const uint8_t *p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return <int32_t>be32toh(value)

cdef inline int64_t get64(const uint8_t *p) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, p, 8)
    return <int64_t>be64toh(value)

cdef inline void set16(uint8_t *p, int64_t number) noexcept nogil:
    cdef uint16_t value = htobe16(<uint16_t>number)
    memcpy(p, &value, 2)

cdef inline void set32(uint8_t *p, int64_t number) noexcept nogil:
    cdef uint32_t value = htobe32(<uint32_t>number)
    memcpy(p, &value, 4)

cdef inline void set64(uint8_t *p, int64_t number) noexcept nogil:
    cdef uint64_t value = htobe64(<uint64_t>number)
    memcpy(p, &value, 8)


# A value that fields hardly ever have. A function that returns it may have raised an exception, so callers check.
cdef inline int64_t uint8(View data, Py_ssize_t at) except -1:
    check(data, at, 1)
    return data[at]

cdef inline int64_t int8(View data, Py_ssize_t at) except? -107:
    check(data, at, 1)
    return <int8_t>data[at]

cdef inline int64_t int16(View data, Py_ssize_t at) except? -31007:
    check(data, at, 2)
    return get16(&data[at])

cdef inline int64_t int32(View data, Py_ssize_t at) except? -2000000011:
    check(data, at, 4)
    return get32(&data[at])

cdef inline int64_t int64(View data, Py_ssize_t at) except? -9000000000000000011:
    check(data, at, 8)
    return get64(&data[at])

cdef inline (int64_t, int64_t, int64_t) read_request_header(View data, Py_ssize_t at) except *:
    check(data, at, 10)
    cdef const uint8_t *p = &data[at]
    return get32(p), get32(p + 4), get16(p + 8)

cdef inline (int64_t, int64_t) read_acks_and_timeout(View data, Py_ssize_t at) except *:
    check(data, at, 6)
    return get16(&data[at]), get32(&data[at + 2])

cdef inline (int64_t, int64_t, int64_t) read_asked(View data, Py_ssize_t at) except *:
    check(data, at, 16)
    cdef const uint8_t *p = &data[at]
    return get32(p), get64(p + 4), get32(p + 12)

cdef inline (int64_t, int64_t, int64_t, int64_t) read_asked_with_start(View data, Py_ssize_t at) except *:
    check(data, at, 24)
    cdef const uint8_t *p = &data[at]
    return get32(p), get64(p + 4), get64(p + 12), get32(p + 20)

cdef inline (int64_t, int64_t, int64_t, int64_t, int64_t) read_asked_in_epoch(View data, Py_ssize_t at) except *:
    check(data, at, 28)
    cdef const uint8_t *p = &data[at]
    return get32(p), get32(p + 4), get64(p + 8), get64(p + 16), get32(p + 24)

cdef inline (int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) read_asked_after_epoch(View data, Py_ssize_t at) except *:
    check(data, at, 32)
    cdef const uint8_t *p = &data[at]
    return get32(p), get32(p + 4), get64(p + 8), get32(p + 16), get64(p + 20), get32(p + 28)

cdef inline (int64_t, int64_t, int64_t, int64_t, int64_t) read_answered(View data, Py_ssize_t at) except *:
    check(data, at, 30)
    cdef const uint8_t *p = &data[at]
    return get32(p), get16(p + 4), get64(p + 6), get64(p + 14), get64(p + 22)

cdef inline (int64_t, int64_t) read_commit(View data, Py_ssize_t at) except *:
    check(data, at, 12)
    cdef const uint8_t *p = &data[at]
    return get32(p), get64(p + 4)

cdef inline (int64_t, int64_t, int64_t) read_commit_with_time(View data, Py_ssize_t at) except *:
    check(data, at, 20)
    cdef const uint8_t *p = &data[at]
    return get32(p), get64(p + 4), get64(p + 12)

cdef inline (int64_t, int64_t, int64_t) read_commit_in_epoch(View data, Py_ssize_t at) except *:
    check(data, at, 16)
    cdef const uint8_t *p = &data[at]
    return get32(p), get64(p + 4), get32(p + 12)

cdef inline (int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) read_batch_header(View data, Py_ssize_t at) except *:
    check(data, at, 61)
    cdef const uint8_t *p = &data[at]
    return (get64(p), get32(p + 8), get32(p + 12), <int8_t>p[16], <uint32_t>get32(p + 17), get16(p + 21), get32(p + 23), get64(p + 27),
            get64(p + 35), get64(p + 43), get16(p + 51), get32(p + 53), get32(p + 57))

ctypedef const uint8_t[::1] Bytes

cdef inline int64_t read_number(const uint8_t[::1] data, Py_ssize_t at) except? -2000000011:
    if at < 0 or at > data.shape[0] - 4:
        raise IndexError("the index ends too early")
    return get32(&data[at])

cdef inline int64_t read_long(const uint8_t[::1] data, Py_ssize_t at) except? -9000000000000000011:
    if at < 0 or at > data.shape[0] - 8:
        raise IndexError("the index ends too early")
    return get64(&data[at])

cdef inline (int64_t, int64_t) read_entry(const uint8_t[::1] data, Py_ssize_t at) except *:
    if at < 0 or at > data.shape[0] - 8:
        raise IndexError("the index ends too early")
    return get32(&data[at]), get32(&data[at + 4])

cdef inline int64_t read_new_number(bytearray data, Py_ssize_t at) except? -2000000011:
    return get32(place(data, at, 4))

cdef inline (int64_t, int64_t) read_new_entry(bytearray data, Py_ssize_t at) except *:
    cdef const uint8_t *p = place(data, at, 8)
    return get32(p), get32(p + 4)

cdef inline (int64_t, int64_t, int64_t, int64_t) read_batch_bounds(bytes data, Py_ssize_t at) except *:
    if data is None or at < 0 or at > PyBytes_GET_SIZE(data) - 27:
        raise IndexError("the bytes end too early")
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data) + at
    return get64(p), get32(p + 8), <int8_t>p[16], get32(p + 23)

cdef inline (int64_t, Py_ssize_t) uvarint(View data, Py_ssize_t at) except *:
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 35:
        check(data, at, 1)
        byte = data[at]
        at += 1
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a varint is longer than five bytes")

cdef inline int64_t wrapped_sum(int64_t number, int64_t other) noexcept:
    return <int64_t>(<uint64_t>number + <uint64_t>other)

cdef inline bytes pack_two_int32(int64_t first, int64_t second):
    cdef uint8_t[8] room
    set32(room, first)
    set32(room + 4, second)
    return PyBytes_FromStringAndSize(<const char *>room, 8)

cdef inline bytes pack_int64_int32(int64_t first, int64_t second):
    cdef uint8_t[12] room
    set64(room, first)
    set32(room + 8, second)
    return PyBytes_FromStringAndSize(<const char *>room, 12)

cdef inline bint holds(View data, Py_ssize_t at, Py_ssize_t end, bytes value) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
    if end - at != size:
        return False
    if size == 0:
        return True
    check(data, at, size)
    return memcmp(&data[at], PyBytes_AS_STRING(value), size) == 0

cdef inline bytes take(View data, Py_ssize_t at, Py_ssize_t end):
    if at == end and 0 <= at <= data.shape[0]:
        return b""
    check(data, at, end - at)
    return PyBytes_FromStringAndSize(<const char *>&data[at], end - at)

cdef inline int stamp(View data, Py_ssize_t at, int64_t base_offset, int64_t length, int64_t leader_epoch) except -1:
    check(data, at, 16)
    cdef uint8_t *p = &data[at]
    set64(p, base_offset)
    set32(p + 8, length)
    set32(p + 12, leader_epoch)
    return 0


cdef inline int put_int16(bytearray room, Py_ssize_t at, int64_t number) except -1:
    set16(place(room, at, 2), number)
    return 0

cdef inline int put_int32(bytearray room, Py_ssize_t at, int64_t number) except -1:
    set32(place(room, at, 4), number)
    return 0

cdef inline int put_int64(bytearray room, Py_ssize_t at, int64_t number) except -1:
    set64(place(room, at, 8), number)
    return 0

cdef inline int put_code(bytearray room, Py_ssize_t at, int64_t index, int64_t error_code) except -1:
    cdef uint8_t *p = place(room, at, 7)
    set32(p, index)
    set16(p + 4, error_code)
    p[6] = 0
    return 0

cdef inline int put_two_int64(bytearray room, Py_ssize_t at, int64_t first, int64_t second) except -1:
    cdef uint8_t *p = place(room, at, 16)
    set64(p, first)
    set64(p + 8, second)
    return 0

cdef inline int put_partition(bytearray room, Py_ssize_t at, int64_t index, int64_t error_code, int64_t first, int64_t second, int64_t third) except -1:
    cdef uint8_t *p = place(room, at, 30)
    set32(p, index)
    set16(p + 4, error_code)
    set64(p + 6, first)
    set64(p + 14, second)
    set64(p + 22, third)
    return 0

cdef inline Py_ssize_t uvarint_size(int64_t value) noexcept:
    return 1 if value < 0x80 else 2 if value < 0x4000 else 3 if value < 0x200000 else 4 if value < 0x10000000 else 5

cdef inline Py_ssize_t put_uvarint(bytearray room, Py_ssize_t at, int64_t value) except -1:
    cdef Py_ssize_t size = uvarint_size(value)
    cdef uint8_t *p = place(room, at, size)
    cdef Py_ssize_t i
    for i in range(size - 1):
        p[i] = <uint8_t>(value & 0x7F | 0x80)
        value >>= 7
    p[size - 1] = <uint8_t>value
    return at + size

cdef inline Py_ssize_t put_bytes(bytearray room, Py_ssize_t at, bytes value) except -1:
    if value is None:
        raise TypeError("no bytes to write")
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
    memcpy(place(room, at, size), PyBytes_AS_STRING(value), size)
    return at + size

cdef inline Py_ssize_t copy(View data, Py_ssize_t start, Py_ssize_t end, bytearray room, Py_ssize_t at) except -1:
    cdef Py_ssize_t size = end - start
    if size == 0:
        return at
    check(data, start, size)
    memcpy(place(room, at, size), &data[start], size)
    return at + size

cdef inline bytearray room_for(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)

cdef inline int widen(bytearray room, Py_ssize_t size) except -1:
    return PyByteArray_Resize(room, size)

cdef inline bytes cut(bytearray room, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char *>place(room, start, end - start), end - start)
