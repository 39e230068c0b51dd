"""The append of plain batches: from the bytes of Produce requests to the file; methods of `PartitionLog`.

Plain is what nearly all producers send to nearly all topics: one whole batch of data, no transaction, to a topic that leaves batches as
they come. For such a batch the outcome can be told from its header, and nothing is changed in it but offset and leader epoch; so it needs
none of the objects that `validation` and `log_append` hand to each other (`python -m benchmarks.hot_path` would notice its loss).

Several of one partition, from requests that came together, are written with one system call. Where a kernel has large folios that is not
only fewer calls, but larger folios, of which there are fewer. `python -m benchmarks.hot_path` has both ways.

Invariant: what is accepted here, `validate_produce` and `append_as_leader` accept too, and leave the same log, one by one or several at
once. Everything else, every error included, is left to them: nothing has been written then. tests/unit/storage/test_plain_append.py and
test_plain_append_of_several.py hold them equal.
"""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from protocol.records.batch import ATTRIBUTES_OFFSET, CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, STAMP, increment_sequence
from protocol.records.checksum import crc32c
from protocol.records.compression import CompressionCodec
from storage.errors import InvalidRecord
from storage.segment.time_index import NO_TIMESTAMP
from storage.validation.batch import FIRST_VERSION_WITH_ZSTD, MIN_RECORD_BYTES, WALK_MAX_RECORDS, walk_lengths

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog
    from storage.validation.rules import ValidationRules

NOT_PLAIN: Final = -1

_HEADER_AND_MAGIC: Final = Struct(">qi4xbIHiqqqhiiI")
"""The header but for the leader epoch, and the first four bytes of the body, by which gzip, lz4 and zstd are known."""
_MIN_SIZE: Final = _HEADER_AND_MAGIC.size
_unpack: Final = _HEADER_AND_MAGIC.unpack_from
_stamp: Final = STAMP.pack_into  # what `stamp` calls

_ZSTD: Final = int(CompressionCodec.ZSTD)
_LAST_CODEC: Final = _ZSTD
"""Attributes up to here are a codec and nothing else: the producer's timestamps, no transaction, no control records."""
_BODY_MASK: Final = (0, 0xFFFFFF00, 0, 0xFFFFFFFF, 0xFFFFFFFF)
_BODY_MAGIC: Final = (0, 0x1F8B0800, 0, 0x04224D18, 0x28B52FFD)


_NOTHING: Final[tuple[list[int], int]] = [], 0

PlainHeader = tuple[int, int, int, int, int]
"""(record count, largest timestamp, producer id, epoch, base sequence)."""

PlainHeaders = tuple[list[PlainHeader], list[int], list[tuple[int, int, int]], int, int, int, bool]
"""Of several: headers, first offsets, (size, last offset, largest timestamp) of each; the offset behind them, the largest timestamp, bytes,
whether one has a producer id."""


def append_plain(self: "PartitionLog", records: memoryview, leader_epoch: int, now_ms: int, api_version: int) -> int:
    """Append what a Produce request of `api_version` holds for this partition; the offset that its first record got.

    NOT_PLAIN: nothing was done, `check_request`, `validate_produce` and `append_as_leader` are to be asked. `records` must be writable.
    Raises what the producer state raises, and LogDirFailure, after which the batch may have been stamped.
    """
    rules = self.rules
    if leader_epoch != self.latest_epoch or not rules.takes_plain:
        return NOT_PLAIN
    size = len(records)
    header = _read_plain(records, rules, api_version)
    if header is None:
        return NOT_PLAIN
    count, max_timestamp, producer_id, _, _ = header
    first_offset = self.log_end_offset
    last_offset = first_offset + count - 1
    if producer_id >= 0 and not _is_new(self, header, first_offset):
        return NOT_PLAIN
    segment = self.active_segment
    try:
        if segment.should_roll(size, last_offset, max_timestamp, now_ms):
            return NOT_PLAIN
        _stamp(records, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
        segment.append(records, size, last_offset, max_timestamp, last_offset)
    except OSError as error:
        raise self.disk_failure(segment.path, error) from error
    self.log_end_offset = last_offset + 1
    if segment.size >= segment.reserve_at:
        self.context.reserve(self)
    if producer_id >= 0:
        _take_in(self, header, first_offset)
    if last_offset >= self.next_flush_offset:
        self.on_flush_due()
    return first_offset


def append_several_plain(
    self: "PartitionLog", batches: Sequence[memoryview], leader_epoch: int, now_ms: int, api_version: int
) -> tuple[list[int], int]:
    """The same for a batch each of several requests, in their order, with one system call; the offsets that their first records got, and
    how many bytes all of them have.

    No offsets: nothing was done, and each is to be appended by itself; so it is when producers differ, a segment begins or ends, or a
    flush is due.
    """
    rules = self.rules
    if leader_epoch != self.latest_epoch or not rules.takes_plain:
        return _NOTHING
    found = _read_several_plain(batches, self.log_end_offset, rules, api_version)
    if found is None:
        return _NOTHING
    headers, first_offsets, placed, end_offset, newest, total, has_producer = found
    if end_offset > self.next_flush_offset:
        return _NOTHING
    if has_producer and not are_new(self, headers, first_offsets):
        return _NOTHING
    segment = self.active_segment
    try:
        if segment.should_roll(total, end_offset - 1, newest, now_ms, len(placed)) or not segment.size:
            return _NOTHING
        _stamp_several(batches, first_offsets, leader_epoch)
        segment.append_several(batches, placed)
    except OSError as error:
        raise self.disk_failure(segment.path, error) from error
    self.log_end_offset = end_offset
    if segment.size >= segment.reserve_at:
        self.context.reserve(self)
    if has_producer:
        take_in(self, headers, first_offsets)
    return first_offsets, total


def _read_several_plain(batches: Sequence[memoryview], end_offset: int, rules: "ValidationRules", api_version: int) -> PlainHeaders | None:
    """Their headers, and where they come to stand from `end_offset` on; None if one is not plain."""
    newest = NO_TIMESTAMP
    total = 0
    first_offsets = []
    headers = []
    placed = []
    has_producer = False
    for records in batches:
        header = _read_plain(records, rules, api_version)
        if header is None:
            return None
        count, max_timestamp, producer_id, _, _ = header
        if producer_id >= 0:
            has_producer = True
        headers.append(header)
        first_offsets.append(end_offset)
        end_offset += count
        size = len(records)
        placed.append((size, end_offset - 1, max_timestamp))
        total += size
        newest = max_timestamp if max_timestamp > newest else newest
    return headers, first_offsets, placed, end_offset, newest, total, has_producer


def _stamp_several(batches: Sequence[memoryview], first_offsets: Sequence[int], leader_epoch: int) -> None:
    for records, first_offset in zip(batches, first_offsets, strict=True):
        _stamp(records, 0, first_offset, len(records) - LOG_OVERHEAD, leader_epoch)


def _read_plain(records: memoryview, rules: "ValidationRules", api_version: int) -> PlainHeader | None:
    """What matters of the header of one whole plain batch; None for anything else."""
    size = len(records)
    if size < _MIN_SIZE:
        return None
    (
        base_offset, length, magic, crc, codec, last_delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, count, body
    ) = _unpack(records)  # fmt: skip
    if (
        length != size - LOG_OVERHEAD
        or magic != CURRENT_MAGIC
        or base_offset
        or size > rules.max_message_bytes
        or codec > _LAST_CODEC
        or count != last_delta + 1
        or count <= 0
        or crc32c(records[ATTRIBUTES_OFFSET:]) != crc
    ):
        return None
    if codec:
        if body & _BODY_MASK[codec] != _BODY_MAGIC[codec] or (codec == _ZSTD and api_version < FIRST_VERSION_WITH_ZSTD):
            return None
    elif count > WALK_MAX_RECORDS:
        if count * MIN_RECORD_BYTES > size - HEADER_SIZE:
            return None
    else:
        try:
            if walk_lengths(records, count, base_timestamp, rules.topic_partition) != max_timestamp:
                return None
        except InvalidRecord:
            return None  # the long way says what is wrong with it first
    return count, max_timestamp, producer_id, epoch, sequence


def _is_new(self: "PartitionLog", header: PlainHeader, first_offset: int) -> bool:
    """Whether its producer numbers the batch, and did not send it before. Raises what `ProducerState.check_append` raises."""
    count, _, producer_id, epoch, sequence = header
    last_sequence = increment_sequence(sequence, count - 1)
    producers = self.producer_state.state
    return (
        sequence >= 0
        and producers.check_append(producer_id, epoch, sequence, last_sequence, is_transactional=False, first_offset=first_offset) is None
    )


def are_new(self: "PartitionLog", headers: list[PlainHeader], first_offsets: list[int]) -> bool:
    """Whether several are of one producer, which numbered them and did not send them before. Raises as `_is_new`."""
    return _follow_each_other(headers) and _is_new(self, headers[0], first_offsets[0])


def take_in(self: "PartitionLog", headers: list[PlainHeader], first_offsets: list[int]) -> None:
    """The producer state learns of several that were appended."""
    for header, first_offset in zip(headers, first_offsets, strict=True):
        _take_in(self, header, first_offset)


def _follow_each_other(headers: list[PlainHeader]) -> bool:
    """Whether all are of one producer, which numbered them without a gap: then all are as new as the first."""
    _, _, producer_id, epoch, expected = headers[0]
    for count, _, its_producer_id, its_epoch, sequence in headers:
        if its_producer_id != producer_id or its_epoch != epoch or sequence != expected:
            return False
        expected = increment_sequence(sequence, count)
    return True


def _take_in(self: "PartitionLog", header: PlainHeader, first_offset: int) -> None:
    """The producer state learns of an appended batch."""
    count, max_timestamp, producer_id, epoch, sequence = header
    self.producer_state.state.on_append(
        producer_id,
        epoch,
        increment_sequence(sequence, count - 1),
        first_offset,
        last_offset=first_offset + count - 1,
        timestamp=max_timestamp,
        is_transactional=False,
    )
