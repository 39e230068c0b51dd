# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Lookups of a read, what they find, the check of plain batches, and how they are written, compiled.

Stands in for functions of `segment_search`, `plain_append`, `segment_append`, `log_append` and `offset_index` and for the fields of
`file_region`, which are the authority; `tests/unit/test_compiled.py` and `tests/unit/storage/test_append_compiled.py` hold both equal.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
from posix.types cimport off_t

from protocol.big_endian cimport i32, i64, put32, put64, u16, u32
from storage.cached_read cimport read_cached
from storage.slots cimport number, set_slot, slot, slot_of_type

from protocol.records.checksum import crc32c

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

    ssize_t pwritev(int file, iovec *vector, int count, off_t at)

cdef enum:
    MAX_BATCHES = 16
    ENTRY_SIZE = 8
    TIME_ENTRY_SIZE = 12
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
    """`plain_append._read_plain`."""
    return header_of(records, rules.max_message_bytes, api_version)


def read_several_plain(list batches not None, int64_t end_offset, rules, int api_version):
    """`plain_append._read_several_plain`."""
    return several_headers(batches, end_offset, rules, api_version)


cdef tuple several_headers(list batches, int64_t end_offset, rules, int api_version):
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
    stamp_all(batches, first_offsets, leader_epoch)


cdef int stamp_all(list batches, list first_offsets, int32_t leader_epoch) except -1:
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
    return 0


cdef struct Slots:
    Py_ssize_t rules, latest_epoch, log_start_offset, log_end_offset, next_flush_offset, active_segment, log_settings, context
    Py_ssize_t takes_plain
    Py_ssize_t size, settings, base_offset, rolling_based_timestamp, roll_jitter_ms, offset_index, time_index, reserve_at
    Py_ssize_t file, max_timestamp, since_last_entry
    Py_ssize_t segment_bytes, roll_after_ms, index_interval_bytes
    Py_ssize_t entries, full_at, tail, index_base_offset, last_offset, last_entry
    Py_ssize_t descriptor

cdef Slots slots
cdef type log_type = None, rules_type = None, segment_type = None, settings_type = None, offset_index_type = None, time_index_type = None
cdef type file_type = None, appended_type = None
cdef object append_several_in_python = None, append_as_follower_in_python = None, are_new_in_python = None, take_in_python = None
cdef object timestamp_offset = None
cdef Py_ssize_t tail_bytes = 0


def stand_before(
    type log not None, type rules not None, type segment not None, type settings not None, type offset_index not None,
    type time_index not None, type file not None, type appended not None, append_several, append_as_follower, are_new, take_in,
    new_timestamp_offset, Py_ssize_t bytes_of_a_tail,
):
    """The classes whose slots the functions below read from now on; what does what they leave, and knows of producers.

    `new_timestamp_offset` makes what a segment holds as its largest timestamp of a pair; a tail of an index with so many bytes is written.
    """
    global log_type, rules_type, segment_type, settings_type, offset_index_type, time_index_type, file_type
    global append_several_in_python, append_as_follower_in_python, are_new_in_python, take_in_python, timestamp_offset, tail_bytes
    global appended_type
    slots.rules = slot_of_type(log, "rules")
    slots.latest_epoch = slot_of_type(log, "latest_epoch")
    slots.log_start_offset = slot_of_type(log, "log_start_offset")
    slots.log_end_offset = slot_of_type(log, "log_end_offset")
    slots.log_settings = slot_of_type(log, "settings")
    slots.next_flush_offset = slot_of_type(log, "next_flush_offset")
    slots.active_segment = slot_of_type(log, "active_segment")
    slots.context = slot_of_type(log, "context")
    slots.takes_plain = slot_of_type(rules, "takes_plain")
    slots.size = slot_of_type(segment, "size")
    slots.settings = slot_of_type(segment, "_settings")
    slots.base_offset = slot_of_type(segment, "base_offset")
    slots.rolling_based_timestamp = slot_of_type(segment, "rolling_based_timestamp")
    slots.roll_jitter_ms = slot_of_type(segment, "roll_jitter_ms")
    slots.offset_index = slot_of_type(segment, "_offset_index")
    slots.time_index = slot_of_type(segment, "_time_index")
    slots.reserve_at = slot_of_type(segment, "reserve_at")
    slots.file = slot_of_type(segment, "_file")
    slots.max_timestamp = slot_of_type(segment, "_max_timestamp")
    slots.since_last_entry = slot_of_type(segment, "bytes_since_last_index_entry")
    slots.segment_bytes = slot_of_type(settings, "segment_bytes")
    slots.roll_after_ms = slot_of_type(settings, "roll_after_ms")
    slots.index_interval_bytes = slot_of_type(settings, "index_interval_bytes")
    slots.entries = slot_of_type(offset_index, "entries")
    slots.full_at = slot_of_type(offset_index, "full_at")
    slots.tail = slot_of_type(offset_index, "_tail")
    slots.index_base_offset = slot_of_type(offset_index, "base_offset")
    slots.last_offset = slot_of_type(offset_index, "last_offset")
    slots.last_entry = slot_of_type(time_index, "last_entry")
    slots.descriptor = slot_of_type(file, "descriptor")
    for name in ("entries", "full_at", "_tail", "base_offset"):
        if slot_of_type(offset_index, name) != slot_of_type(time_index, name):
            raise ImportError("the indexes have not got their slots from one class")
    log_type, rules_type, segment_type, settings_type, offset_index_type, time_index_type = log, rules, segment, settings, offset_index, time_index
    append_several_in_python, append_as_follower_in_python = append_several, append_as_follower
    are_new_in_python, take_in_python = are_new, take_in
    file_type, appended_type, timestamp_offset, tail_bytes = file, appended, new_timestamp_offset, bytes_of_a_tail


cdef enum Room:
    FULL
    FREE
    UNKNOWN


cdef Room room_in(segment, int64_t length, int64_t last_offset, int64_t max_timestamp, int64_t entries) except? UNKNOWN:
    """Whether batches need no new segment, if that can be told from its slots."""
    cdef int64_t first
    settings = slot(segment, slots.settings)
    offset_index = slot(segment, slots.offset_index)
    time_index = slot(segment, slots.time_index)
    rolling_based_timestamp = slot(segment, slots.rolling_based_timestamp)
    if (
        type(settings) is not settings_type
        or type(offset_index) is not offset_index_type
        or type(time_index) is not time_index_type
        or rolling_based_timestamp is None
    ):
        return UNKNOWN
    first = rolling_based_timestamp
    if first <= 0 or max_timestamp < 0:
        return UNKNOWN
    return FREE if (
        number(segment, slots.size) <= number(settings, slots.segment_bytes) - length
        and last_offset - number(segment, slots.base_offset) <= INT32_MAX
        and max_timestamp - first <= number(settings, slots.roll_after_ms) - number(segment, slots.roll_jitter_ms)
        and number(offset_index, slots.entries) + entries <= number(offset_index, slots.full_at)
        and number(time_index, slots.entries) + entries <= number(time_index, slots.full_at)
    ) else FULL


cdef bint has_room(
    segment, int64_t length, int64_t last_offset, int64_t max_timestamp, int64_t now_ms, int64_t entries
) except -1:
    """Whether batches need no new segment; the segment is asked about whatever cannot be told from its slots."""
    cdef Room found = room_in(segment, length, last_offset, max_timestamp, entries)
    return found == FREE if found != UNKNOWN else not segment.should_roll(length, last_offset, max_timestamp, now_ms, entries)


cdef bint append_to(segment, list batches, list placed, int64_t total) except -1:
    """`segment_append.append_several`, step by step. Where the largest timestamp is not that of a batch's end, its offset is a fourth number.

    False where that is to do it: other kinds of files, entries that go to the disk or are not allowed, a write that fails or ends early, which
    it finds in doing the same again.
    """
    cdef uint8_t[MAX_BATCHES * ENTRY_SIZE] offsets
    cdef uint8_t[MAX_BATCHES * TIME_ENTRY_SIZE] times
    cdef Py_ssize_t count = len(placed), entries = 0, time_entries = 0, i
    cdef int64_t start = number(segment, slots.size), since_last_entry = number(segment, slots.since_last_entry)
    cdef int64_t position = start, base_offset, interval, largest, of_largest, latest, last_offset = 0, relative
    cdef tuple each
    file = slot(segment, slots.file)
    settings = slot(segment, slots.settings)
    offset_index = slot(segment, slots.offset_index)
    time_index = slot(segment, slots.time_index)
    last_max = slot(segment, slots.max_timestamp)
    if (
        count > MAX_BATCHES
        or count != len(batches)
        or type(file) is not file_type
        or type(settings) is not settings_type
        or type(offset_index) is not offset_index_type
        or type(time_index) is not time_index_type
        or last_max is None
    ):
        return False
    base_offset = number(offset_index, slots.index_base_offset)
    interval = number(settings, slots.index_interval_bytes)
    largest = last_max[0]
    of_largest = last_max[1]
    last_entry = slot(time_index, slots.last_entry)
    latest = last_entry[0]
    for i in range(count):
        each = placed[i]
        if <int64_t>each[2] > largest:
            largest = each[2]
            of_largest = each[3] if len(each) > 3 else each[1]
            last_max = timestamp_offset((largest, of_largest))
        if since_last_entry > interval:
            last_offset = each[1]
            relative = last_offset - base_offset
            if not (INT32_MIN <= relative <= INT32_MAX and INT32_MIN <= position <= INT32_MAX):
                return False
            if not entries and last_offset <= number(offset_index, slots.last_offset) and number(offset_index, slots.entries):
                return False
            put32(put32(offsets + entries * ENTRY_SIZE, <int32_t>relative), <int32_t>position)
            entries += 1
            if largest > latest:
                relative = of_largest - base_offset
                if of_largest < <int64_t>last_entry[1] or not INT32_MIN <= relative <= INT32_MAX:
                    return False
                put32(put64(times + time_entries * TIME_ENTRY_SIZE, largest), <int32_t>relative)
                time_entries += 1
                latest = largest
                last_entry = last_max
            since_last_entry = 0
        position += <int64_t>each[0]
        since_last_entry += <int64_t>each[0]
    if not has_tail_room(offset_index, entries * ENTRY_SIZE) or not has_tail_room(time_index, time_entries * TIME_ENTRY_SIZE):
        return False
    if not write_all(number(file, slots.descriptor), batches, total, start):
        return False
    if entries:
        add_entries(offset_index, offsets, entries, ENTRY_SIZE)
        set_slot(offset_index, slots.last_offset, last_offset)
    if time_entries:
        add_entries(time_index, times, time_entries, TIME_ENTRY_SIZE)
        set_slot(time_index, slots.last_entry, last_entry)
    set_slot(segment, slots.max_timestamp, last_max)
    set_slot(segment, slots.size, position)
    set_slot(segment, slots.since_last_entry, since_last_entry)
    return True


cdef bint has_tail_room(index, Py_ssize_t size) except -1:
    tail = slot(index, slots.tail)
    return type(tail) is bytearray and PyByteArray_GET_SIZE(tail) + size < tail_bytes


cdef int add_entries(index, const uint8_t *entries, Py_ssize_t count, Py_ssize_t size) except -1:
    tail = slot(index, slots.tail)
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(tail)
    PyByteArray_Resize(tail, before + count * size)
    memcpy(PyByteArray_AS_STRING(tail) + before, entries, count * size)
    set_slot(index, slots.entries, number(index, slots.entries) + count)
    return 0


cdef bint write_all(int file, list batches, int64_t total, int64_t at) except -1:
    """Whether all of them were written with one system call. Other threads run meanwhile."""
    cdef Py_buffer[MAX_BATCHES] buffers
    cdef iovec[MAX_BATCHES] vector
    cdef int held = 0
    cdef ssize_t written = -1
    try:
        for batch in batches:
            PyObject_GetBuffer(batch, &buffers[held], PyBUF_SIMPLE)
            vector[held].iov_base = buffers[held].buf
            vector[held].iov_len = <size_t>buffers[held].len
            held += 1
        with nogil:
            written = pwritev(file, vector, held, at)
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&buffers[held])
    return written == total


def append_several_plain(self, list batches not None, leader_epoch, int64_t now_ms, int api_version):
    """`plain_append.append_several_plain`, step by step."""
    cdef tuple found
    cdef list headers, first_offsets, placed
    cdef int64_t end_offset, total
    if type(self) is not log_type:
        return append_several_in_python(self, batches, leader_epoch, now_ms, api_version)
    rules = slot(self, slots.rules)
    segment = slot(self, slots.active_segment)
    if type(rules) is not rules_type or type(segment) is not segment_type:  # it is closed, or being truncated
        return append_several_in_python(self, batches, leader_epoch, now_ms, api_version)
    if slot(self, slots.latest_epoch) != leader_epoch or slot(rules, slots.takes_plain) is not True:
        return [], 0
    found = several_headers(batches, number(self, slots.log_end_offset), rules, api_version)
    if found is None:
        return [], 0
    headers = found[0]
    first_offsets = found[1]
    placed = found[2]
    end_offset = found[3]
    total = found[5]
    if end_offset > number(self, slots.next_flush_offset) or (found[6] and not are_new_in_python(self, headers, first_offsets)):
        return [], 0
    try:
        if not number(segment, slots.size) or not has_room(segment, total, end_offset - 1, found[4], now_ms, len(placed)):
            return [], 0
        stamp_all(batches, first_offsets, leader_epoch)
        if not append_to(segment, batches, placed, total):
            segment.append_several(batches, placed)
    except OSError as error:
        raise self.disk_failure(segment.path, error) from error
    set_slot(self, slots.log_end_offset, end_offset)
    if number(segment, slots.size) >= number(segment, slots.reserve_at):
        slot(self, slots.context).reserve(self)
    if found[6]:
        take_in_python(self, headers, first_offsets)
    return first_offsets, total


def append_as_follower(self, records, leader_epoch):
    """`log_append.append_as_follower`, step by step: sound batches of the epoch that the log is in, without producer ids, the last one whole."""
    cdef Py_buffer buffer
    cdef const uint8_t *p
    cdef int64_t end, position = 0, size, last_offset = -1, first_offset = -1, newest = -1, of_newest = -1, last, epoch
    if type(self) is not log_type:
        return append_as_follower_in_python(self, records, leader_epoch)
    segment = slot(self, slots.active_segment)
    settings = slot(self, slots.log_settings)
    latest_epoch = slot(self, slots.latest_epoch)
    if type(segment) is not segment_type or type(settings) is not settings_type or latest_epoch is None or latest_epoch > leader_epoch:
        return append_as_follower_in_python(self, records, leader_epoch)
    epoch = latest_epoch
    PyObject_GetBuffer(records, &buffer, PyBUF_SIMPLE)
    try:
        end = buffer.len
        while end - position >= HEADER_SIZE:
            p = <const uint8_t *>buffer.buf + position
            size = <int64_t>i32(p + 8) + LOG_OVERHEAD
            last = i64(p) + i32(p + 23)
            if (
                p[16] != CURRENT_MAGIC
                or not HEADER_SIZE <= size <= end - position
                or i32(p + 12) != epoch
                or i64(p + 43) >= 0
                or last <= last_offset
                or crc32c(records[position + ATTRIBUTES_OFFSET : position + size]) != u32(p + 17)
            ):
                break
            if not position:
                first_offset = i64(p)
            last_offset = last
            if i64(p + 35) > newest:
                newest = i64(p + 35)
                of_newest = last
            position += size
    finally:
        PyBuffer_Release(&buffer)
    if (
        not end
        or position != end
        or first_offset < number(self, slots.log_end_offset)
        or last_offset >= number(self, slots.next_flush_offset)
        or end > number(settings, slots.segment_bytes)
        or not number(segment, slots.size)
        or room_in(segment, end, last_offset, newest, 1) != FREE
        or not append_to(segment, [records], [(end, last_offset, newest, of_newest)], end)
    ):
        return append_as_follower_in_python(self, records, leader_epoch)
    set_slot(self, slots.log_end_offset, last_offset + 1)
    if number(segment, slots.size) >= number(segment, slots.reserve_at):
        slot(self, slots.context).reserve(self)
    return appended_type(first_offset, last_offset, -1, slot(self, slots.log_start_offset))


def pack_entries(added, int64_t base_offset):
    """`offset_index._pack_entries`."""
    cdef Py_ssize_t count = len(added)
    cdef int64_t relative, position
    cdef tuple entry
    packed = PyBytes_FromStringAndSize(NULL, count * ENTRY_SIZE)
    cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(packed)
    for entry in added:
        relative = <int64_t>entry[0] - base_offset
        position = entry[1]
        if not (INT32_MIN <= relative <= INT32_MAX and INT32_MIN <= position <= INT32_MAX):
            raise OverflowError("what no entry holds")
        p = put32(put32(p, <int32_t>relative), <int32_t>position)
    return packed
