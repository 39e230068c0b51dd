# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiles the lookups of a read and what they find.

Stands in for functions of `segment` and for the fields of `file_region`, which are the authority;
`tests/unit/test_compiled.py` holds both equal.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t

from protocol.big_endian cimport i32, i64
from storage.cached_read cimport read_cached

cdef enum:
    ENTRY_SIZE = 8
    POSITION = 4
    BOUNDS_SIZE = 27
    HEADER_SIZE = 61
    CURRENT_MAGIC = 2

cdef type found_type = None


@cython.auto_pickle(False)
cdef class Region:
    """As in `storage.file_region`."""

    def __init__(self, file, int64_t position, int64_t length, bint end_is_cached=False):
        self.file = file
        self.position = position
        self.length = length
        self.end_is_cached = end_is_cached
        self.begun = None


def find_as(type region_type not None):
    """What lookups give from now on: the class of `storage.file_region` that has the methods. Until then they find nothing."""
    global found_type
    if not issubclass(region_type, Region):
        raise TypeError(f"{region_type} is no Region")
    found_type = region_type


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


cdef bint read_bounds(
    int fd, uint8_t *into, int64_t count, int64_t base_offset, int64_t size, int64_t entry_offset, int64_t position, int64_t *first, int64_t *last
) noexcept nogil:
    """First and last offset of the batch at `position`, from the `count` bytes there; whether it is the one of the entry that leads there."""
    if not 0 < position <= size - HEADER_SIZE or read_cached(fd, into, <size_t>count, position) != count:
        return False
    first[0] = i64(into)
    last[0] = first[0] + i32(into + 23)
    return into[16] == CURRENT_MAGIC and base_offset <= first[0] <= last[0] <= entry_offset and position + i32(into + 8) < size


cdef Region region_between(
    file, int fd, entries, Py_ssize_t count, int64_t base_offset, int64_t size, int64_t offset, int64_t max_bytes, int64_t *next_offset
):
    """What `between_entries` finds, of a file with that descriptor, or None."""
    cdef Py_buffer buffer
    cdef const uint8_t *data
    cdef const uint8_t *entry
    cdef uint8_t[BOUNDS_SIZE] header
    cdef uint8_t *into = header
    cdef Py_ssize_t slot
    cdef int64_t position, end, cut, first, last, first_end_offset, copied
    cdef bytes begun = None
    cdef Region region
    PyObject_GetBuffer(entries, &buffer, PyBUF_SIMPLE)
    try:
        if count > buffer.len // ENTRY_SIZE or max_bytes < 0 or max_bytes > size or found_type is None:
            return None
        data = <const uint8_t *>buffer.buf
        slot = slot_of(data, count, 0, offset - base_offset)
        if slot < 0:
            return None
        entry = data + (slot + 1) * ENTRY_SIZE
        first_end_offset = base_offset + i32(entry)
        position = i32(entry + POSITION)
        cut = position + max_bytes
        if cut >= size:
            return None
        slot = slot_of(data, count, POSITION, cut)
        if slot < 0:
            return None
        entry = data + slot * ENTRY_SIZE
        end = i32(entry + POSITION)
        if end <= position or cut - end > max_bytes // 4:
            return None
        copied = bytes_to_copy(position, end - position)
        if copied >= BOUNDS_SIZE:
            # The header, and what is sent together with it: one call reads both.
            begun = PyBytes_FromStringAndSize(NULL, copied)
            into = <uint8_t *>PyBytes_AS_STRING(begun)
        else:
            copied = BOUNDS_SIZE
        if (
            not read_bounds(fd, into, copied, base_offset, size, first_end_offset, position, &first, &last)
            or not first <= offset <= last
            or not read_bounds(fd, header, BOUNDS_SIZE, base_offset, size, base_offset + i32(entry), end, next_offset, &last)
            or next_offset[0] <= offset
        ):
            return None
        region = <Region>found_type.__new__(found_type)
        region.file = file
        region.position = position
        region.length = end - position
        region.end_is_cached = True
        region.begun = begun
        return region
    finally:
        PyBuffer_Release(&buffer)


def between_entries(file, entries, Py_ssize_t count, int64_t base_offset, int64_t size, int64_t offset, int64_t max_bytes):
    """`segment_search.between_entries`, of the log file and the `count` entries of its offset index that are around the offset.

    None also where that would wait for the disk. No other thread is let in between: a system call takes a fraction of what that does.
    """
    cdef int64_t next_offset = 0
    cdef Region region = region_between(file, file.descriptor, entries, count, base_offset, size, offset, max_bytes, &next_offset)
    return None if region is None else (region, next_offset)
