"""Walks over the records of a batch, decompressed: checks all of them, or goes from one to the next.

`RecordCheck` makes no object for a record (10 ns each when compiled), and takes the bytes in pieces as they are decompressed: produce
validation checks every batch of a client with it. `RecordWalk` is for readers in Python: the record readers, the cleaner, the loading of
coordinators. Both loop over the one strict step, `ottla.protocol.records.record_step`, and so agree about every byte.
"""

from typing import final

from ottla.protocol.records import record_step
from ottla.protocol.records.batch import NO_TIMESTAMP
from ottla.protocol.records.errors import InvalidRecord
from ottla.protocol.records.record_step import BATCH_COUNT, INCOMPLETE, RECORDS_REMAIN, record_error


@final
class RecordCheck:
    """Checks the records of one batch after another, and collects what the rules of a topic need to know about them.

    `index` is the number of records that were checked. `latest` is their largest timestamp, at least -1. `earliest` is the smallest
    timestamp of the records that have one, else -1. `missing` tells how many bytes the next record needs at least, behind those that `take`
    got.
    """

    __slots__ = (
        "_base_timestamp",
        "_size",
        "count",
        "earliest",
        "has_null_key",
        "index",
        "latest",
        "missing",
        "offsets_are_consecutive",
    )

    def __init__(self) -> None:
        self.begin(0, 0)

    def begin(self, count: int, base_timestamp: int) -> None:
        """Turn to a batch whose header has this number of records, and this base timestamp. Raises InvalidRecord for a negative number."""
        if count < 0:
            raise record_error(BATCH_COUNT, count, 0)
        self.count = count
        self._base_timestamp = base_timestamp
        self._size = 0
        self.index = 0
        self.latest = self.earliest = NO_TIMESTAMP
        self.missing = 0
        self.has_null_key = False
        self.offsets_are_consecutive = True

    def take(self, data: record_step.Bytes, at: int, end: int, most: int) -> int:
        """Check the next records, which begin at `at`, until `most` bytes of them are checked. Returns the position behind the last one.

        If the bytes up to `end` end in a record, its start is returned, and `missing` is set. Raises InvalidRecord.
        """
        index = self.index
        count = self.count
        until = at + most
        latest, earliest = self.latest, self.earliest
        self.missing = 0
        while index < count and at < until:
            after, elapsed, delta, key_size = record_step.check_record(data, at, end)
            if after < 0:
                if after != INCOMPLETE:
                    raise record_error(after, elapsed, delta)
                self.missing = elapsed
                self._size = delta
                break
            timestamp = record_step.wrapped_sum(self._base_timestamp, elapsed)
            latest = max(latest, timestamp)
            if timestamp != NO_TIMESTAMP and (timestamp < earliest or earliest == NO_TIMESTAMP):
                earliest = timestamp
            if delta != index:
                self.offsets_are_consecutive = False
            if key_size < 0:
                self.has_null_key = True
            at = after
            index += 1
        self.index = index
        self.latest = latest
        self.earliest = earliest
        return at

    def end_error(self) -> InvalidRecord:
        """The error for bytes that end in a record, where no more follow."""
        return record_error(INCOMPLETE, self.missing, self._size)


@final
class RecordWalk:
    """Goes from record to record of a batch, whose decompressed bytes are `data`. `advance` goes to the next one.

    The attributes are those of the record: its place from `start` to `end`, the deltas of timestamp and offset, the size of key and value
    (-1 for null), and the number of headers. `delta_at` is the place of the offset delta, `body_at` that of all behind it.
    """

    __slots__ = (
        "_data",
        "_headers_at",
        "_left",
        "body_at",
        "data",
        "delta",
        "delta_at",
        "elapsed",
        "end",
        "headers",
        "key_at",
        "key_size",
        "start",
        "value_at",
        "value_size",
    )

    def __init__(self, data: bytes, count: int) -> None:
        """Raises InvalidRecord for a negative number of records."""
        if count < 0:
            raise record_error(BATCH_COUNT, count, 0)
        self.data = data
        self._data: record_step.Bytes = data
        self._left = count
        self.start = self.end = self.delta_at = self.body_at = self.key_at = self.value_at = self._headers_at = 0
        self.elapsed = self.delta = self.headers = 0
        self.key_size = self.value_size = -1

    def advance(self) -> bool:
        """Go to the next record. False behind the last one. Raises InvalidRecord, at the last record also for bytes behind it."""
        if self._left <= 0:
            return False
        start, size = self.end, len(self.data)
        end, elapsed, delta, delta_at, body_at, key_at, key_size, value_at, value_size, headers, at = record_step.read_record(
            self._data, start, size
        )
        if end < 0:
            raise record_error(end, elapsed, delta)
        self._left -= 1
        if not self._left and end != size:
            raise InvalidRecord(RECORDS_REMAIN)
        self.start = start
        self.end = end
        self.elapsed = elapsed
        self.delta = delta
        self.delta_at = delta_at
        self.body_at = body_at
        self.key_at = key_at
        self.key_size = key_size
        self.value_at = value_at
        self.value_size = value_size
        self.headers = headers
        self._headers_at = at
        return True

    def key(self) -> bytes | None:
        """The key of the record."""
        return None if self.key_size < 0 else self.data[self.key_at : self.key_at + self.key_size]

    def value(self) -> bytes | None:
        """The value of the record."""
        return None if self.value_size < 0 else self.data[self.value_at : self.value_at + self.value_size]

    def read_headers(self) -> tuple[tuple[bytes, bytes | None], ...]:
        """The headers of the record."""
        data = self.data
        found: list[tuple[bytes, bytes | None]] = []
        at = self._headers_at
        for _ in range(self.headers):
            at, key_at, key_size, value_at, value_size = record_step.read_header(self._data, at, self.end)
            found.append((data[key_at : key_at + key_size], None if value_size < 0 else data[value_at : value_at + value_size]))
        return tuple(found)

    def joined_header_keys(self) -> bytes:
        """The keys of the record's headers, with commas in between."""
        keys = bytearray()
        at = self._headers_at
        for number in range(self.headers):
            at, key_at, key_size, _, _ = record_step.read_header(self._data, at, self.end)
            if number:
                keys += b","
            keys += self.data[key_at : key_at + key_size]
        return bytes(keys)
