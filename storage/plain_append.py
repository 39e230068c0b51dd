"""The append of a plain batch: from the bytes of a Produce request to the file in one function; a method of `PartitionLog`.

Plain is what nearly all producers send to nearly all topics: one whole batch of data, no transaction, to a topic that leaves batches as
they come. For such a batch the outcome can be told from its header, and nothing is changed in it but offset and leader epoch; so it needs
none of the objects that `validation` and `log_append` hand to each other (`python -m benchmarks.hot_path` would notice its loss).

Invariant: what is accepted here, `validate_produce` and `append_as_leader` accept too, and leave the same log. Everything else, every error
included, is left to them: nothing has been written then. tests/unit/storage/test_plain_append.py holds both equal.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from protocol.checksum import crc32c
from protocol.compression import CompressionCodec
from protocol.records import ATTRIBUTES_OFFSET, CURRENT_MAGIC, HEADER_SIZE, LOG_OVERHEAD, STAMP, increment_sequence
from storage.validation import FIRST_VERSION_WITH_ZSTD, MIN_RECORD_BYTES, WALK_MAX_RECORDS, walk_lengths

if TYPE_CHECKING:
    from storage.partition_log import PartitionLog

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


def append_plain(self: "PartitionLog", records: memoryview, leader_epoch: int, now_ms: int, api_version: int) -> int:
    """Append what a Produce request of `api_version` holds for this partition; the offset that its first record got.

    NOT_PLAIN: nothing was done, `check_request`, `validate_produce` and `append_as_leader` are to be asked. `records` must be writable.
    Raises InvalidRecord, what the producer state raises, and LogDirFailure, after which the batch may have been stamped.
    """
    size = len(records)
    rules = self.rules
    if size < _MIN_SIZE or leader_epoch != self.latest_epoch or not rules.takes_plain:
        return NOT_PLAIN
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
        return NOT_PLAIN
    if codec:
        if body & _BODY_MASK[codec] != _BODY_MAGIC[codec] or (codec == _ZSTD and api_version < FIRST_VERSION_WITH_ZSTD):
            return NOT_PLAIN
    elif count > WALK_MAX_RECORDS:
        if count * MIN_RECORD_BYTES > size - HEADER_SIZE:
            return NOT_PLAIN
    elif walk_lengths(records, count, base_timestamp, rules.topic_partition) != max_timestamp:
        return NOT_PLAIN
    first_offset = self.log_end_offset
    last_offset = first_offset + last_delta
    producers = None
    if producer_id >= 0:
        if sequence < 0:
            return NOT_PLAIN
        producers = self.producer_state.state
        last_sequence = increment_sequence(sequence, last_delta)
        duplicate = producers.check_append(producer_id, epoch, sequence, last_sequence, is_transactional=False, first_offset=first_offset)
        if duplicate is not None:
            return NOT_PLAIN
    segment = self.active_segment
    try:
        if segment.should_roll(size, last_offset, max_timestamp, now_ms):
            return NOT_PLAIN
        _stamp(records, 0, first_offset, length, leader_epoch)
        segment.append(records, size, last_offset, max_timestamp, last_offset)
    except OSError as error:
        raise self.disk_failure(segment.path, error) from error
    self.log_end_offset = last_offset + 1
    if producers is not None:
        producers.on_append(
            producer_id, epoch, last_sequence, first_offset, last_offset=last_offset, timestamp=max_timestamp, is_transactional=False
        )
    if last_offset >= self.next_flush_offset:
        self.on_flush_due()
    return first_offset
