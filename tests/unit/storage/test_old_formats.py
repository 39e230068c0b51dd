"""Logs with messages of formats 0 and 1: opened after a crash, read, replicated, looked up by time and cleaned."""

from __future__ import annotations

import itertools

import pytest

from ottla.protocol.conversion.old_logs import records_at
from ottla.protocol.records.batch import CURRENT_MAGIC, iter_batches
from ottla.protocol.records.compression import CompressionCodec
from ottla.storage.errors import CorruptRecord, OffsetsOutOfOrder
from ottla.storage.log.lookups import offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.offset_index import MAX_RELATIVE_OFFSET
from tests.support.batches import a_batch
from tests.support.cleaners import clean_log
from tests.support.logs import a_context, a_log, append, follow, read_all
from tests.support.old_messages import LOG_APPEND_TIME, Old, message, messages, wrapped

CODECS = [CompressionCodec.NONE, CompressionCodec.GZIP, CompressionCodec.SNAPPY, CompressionCodec.LZ4]
SETS = list(itertools.product([0, 1], CODECS))


def some_olds(offset: int, count: int, magic: int) -> list[Old]:
    return [
        Old(offset + number, 1000 + offset + number if magic else -1, b"k%d" % ((offset + number) % 3), b"value %d" % (offset + number))
        for number in range(count)
    ]


def a_set(offset: int, magic: int, codec: int, count: int = 3) -> bytes:
    olds = some_olds(offset, count, magic)
    return wrapped(magic, codec, olds) if codec else messages(magic, olds)


def everything(log: PartitionLog) -> list[Old]:
    data = read_all(log, log.segments.first.base_offset)
    return [
        Old(record.offset, record.timestamp, record.key, record.value)
        for position, header in iter_batches(data)
        for record in records_at(data, position, header)
    ]


def filled(**config: str | int) -> tuple[PartitionLog, list[Old]]:
    """A log that a follower filled with all kinds of messages, and a batch of today at the end; and its records."""
    log = a_log(a_context(), **config)
    records: list[Old] = []
    for magic, codec in SETS * 2:
        follow(log, a_set(log.log_end_offset, magic, codec), 0)
        records += some_olds(log.log_end_offset - 3, 3, magic)
    append(log, a_batch(1))
    log.update_high_watermark(log.log_end_offset)
    return log, records


def test_messages_are_replicated_byte_by_byte_and_read_from_every_offset() -> None:
    log, records = filled()
    assert everything(log)[:-1] == records
    copy = a_log(a_context())
    follow(copy, read_all(log), 0)
    assert read_all(copy) == read_all(log)
    for offset in range(log.log_end_offset):
        region = log.read(offset, 1, log.log_end_offset, True).region
        assert region is not None
        data = region.read()
        ((position, header),) = iter_batches(data)
        offsets = [record.offset for record in records_at(data, position, header)]
        assert offsets[0] <= offset <= offsets[-1]


@pytest.mark.parametrize("cut", [0, 1, 11, 13, 17, 25, 26, 30])
def test_a_torn_message_at_the_end_is_cut_and_indexes_are_rebuilt(cut: int) -> None:
    log, records = filled(index_interval_bytes=1)
    filesystem = log.context.filesystem
    whole = log.size_bytes
    torn = message(1, Old(log.log_end_offset, 1, None, b"torn"))
    log.segments.active.file.pwrite(torn[:cut], whole)
    again = a_log(a_context(filesystem), clean=False, index_interval_bytes=1)
    assert (again.size_bytes, again.log_end_offset) == (whole, log.log_end_offset)
    assert everything(again)[:-1] == records
    assert again.segments.active.offset_index.entries > 0


def test_damage_in_a_message_is_cut_with_everything_behind_it() -> None:
    log, records = filled()
    data = read_all(log)
    position = next(position for position, header in iter_batches(data) if header.last_offset >= 10)
    log.segments.active.file.pwrite(b"\xff", position + 30)
    again = a_log(a_context(log.context.filesystem), clean=False)
    assert everything(again) == records[: again.log_end_offset]
    assert again.size_bytes == position


@pytest.mark.parametrize("magic", [0, 1])
def test_the_smallest_messages_are_found_at_the_end_of_a_log(magic: int) -> None:
    log = a_log(a_context())
    for offset in range(3):
        follow(log, message(magic, Old(offset, -1, None, None)), 0)
    assert [old.offset for old in everything(log)] == [0, 1, 2]
    found = log.read(2, 100, 3, True)
    assert (found.region and found.region.length, found.next_offset) == (26 + 8 * magic, 3)
    again = a_log(a_context(log.context.filesystem), clean=False)
    assert again.log_end_offset == 3
    log.close()
    assert a_log(a_context(log.context.filesystem)).log_end_offset == 3


def test_a_compressed_message_begins_no_segment_behind_its_first_record() -> None:
    log, records = filled(segment_bytes=300)
    assert len(log.segments) > 5
    assert everything(log)[:-1] == records
    for segment in log.segments:
        found = log.read(segment.base_offset, 1 << 20, log.log_end_offset, True)
        assert found.region is not None
        assert found.region.position == 0


def test_records_of_format_1_are_found_by_time() -> None:
    log, records = filled()
    for old in records:
        if old.timestamp >= 0:
            found = offset_for_timestamp(log, old.timestamp)
            assert found is not None
            assert (found.offset, found.timestamp) == (old.offset, old.timestamp)


def test_a_log_of_format_0_has_no_times() -> None:
    log = a_log(a_context())
    follow(log, a_set(0, 0, CompressionCodec.GZIP), 0)
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None


def test_cleaning_converts_messages_to_batches_and_keeps_the_latest_of_each_key() -> None:
    log, records = filled(cleanup_policy="compact")
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    clean_log(log)
    data = read_all(log, 0)
    headers = [header for _, header in iter_batches(data)]
    assert {header.magic for header in headers} == {CURRENT_MAGIC}
    latest = {old.key: old for old in records}
    assert everything(log)[:-1] == sorted(latest.values())
    assert log.log_end_offset == records[-1].offset + 2


def test_single_messages_with_the_time_of_their_append_keep_it_when_they_are_cleaned() -> None:
    log = a_log(a_context(), cleanup_policy="compact")
    olds = [Old(offset, 1000 + offset // 2, b"k%d" % offset, b"v") for offset in range(6)]
    follow(log, messages(1, olds, LOG_APPEND_TIME), 0)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    clean_log(log)
    assert everything(log) == olds
    assert len(list(iter_batches(read_all(log, 0)))) == 3


def test_a_follower_refuses_damaged_messages() -> None:
    log = a_log(a_context())
    with pytest.raises(CorruptRecord):
        follow(log, message(1, Old(0, 1, None, b"v"), crc=1), 0)
    with pytest.raises(OffsetsOutOfOrder):
        follow(log, 2 * message(1, Old(0, 1, None, b"v")), 0)
    assert log.size_bytes == 0


@pytest.mark.parametrize("codec", [CompressionCodec.NONE, CompressionCodec.GZIP])
def test_a_message_far_behind_the_one_before_is_in_reach_of_its_segment(codec: CompressionCodec) -> None:
    log = a_log(a_context())
    follow(log, a_set(0, 1, CompressionCodec.NONE, 1), 0)
    far = MAX_RELATIVE_OFFSET + 6
    follow(log, a_set(far, 1, codec, 1), 0)
    assert log.segments.bases == [0, 6]
    expected = everything(log)
    assert [old.offset for old in expected] == [0, far]
    log.close()
    for clean in (True, False):
        again = a_log(a_context(log.context.filesystem), clean=clean)
        assert everything(again) == expected
        found = offset_for_timestamp(again, 1000 + far)
        assert found is not None
        assert found.offset == far


def test_a_damaged_offset_in_a_flushed_message_makes_up_no_producer_snapshots() -> None:
    """Brokers of that time left none."""
    log, _ = filled(segment_bytes=300)
    log.flush()
    log.close()
    filesystem = log.context.filesystem
    *early, last = log.producer_state.snapshot_offsets
    for offset in early:
        filesystem.unlink(log.producer_state.snapshot_path(offset))
    first = log.segments.first.path
    filesystem.open(first).pwrite(b"\x7f", 0)
    filesystem.unlink(first.replace(".log", ".index"))
    again = a_log(a_context(filesystem), segment_bytes=300)
    assert (again.log_end_offset, again.producer_state.snapshot_offsets) == (last, [last])
    again.truncations.truncate_to(last - 1)
    assert append(again, a_batch(1)).first_offset == last - 1


def test_a_message_of_an_old_format_ends_what_is_known_of_leader_epochs() -> None:
    """Its leader has forgotten them, and refuses a follower that names one. So does Apache Kafka."""
    log = a_log(a_context())
    append(log, a_batch(1), epoch=3)
    follow(log, a_set(1, 1, CompressionCodec.NONE, 2), 5)
    assert (log.latest_epoch, log.leader_epochs.entries) == (None, [])
    follow(log, a_batch(1, base_offset=3, leader_epoch=6), 6)
    assert (log.latest_epoch, log.leader_epochs.entries) == (6, [(6, 3)])
    mixed = [a_batch(1, base_offset=4, leader_epoch=7), a_set(5, 1, CompressionCodec.GZIP), a_batch(1, base_offset=8, leader_epoch=7)]
    follow(log, b"".join(mixed), 7)
    assert (log.latest_epoch, log.leader_epochs.entries) == (7, [(7, 8)])
    again = a_log(a_context(log.context.filesystem), clean=False, recovery_point=8)
    assert again.latest_epoch == 7
