"""A partition of the metadata topic is read once for each user partition, in whatever order they are followed."""

import asyncio
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.batch import crc_is_valid, iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CompressionCodec
from ottla.protocol.records.errors import CorruptRecord
from ottla.protocol.records.reader import Record, iter_keys_and_values, record_data
from ottla.storage.remote.entries import SegmentState, TopicIdPartition
from ottla.storage.remote.metadata.log import NAMED, MetadataLog
from ottla.storage.remote.metadata.lone_records import lone_record
from ottla.storage.remote.metadata.records import encode_update, place_of
from ottla.storage.remote.object_layout import with_mark
from tests.support.remote_metadata import A_PARTITION, an_entry, an_update, batches_of, state_of, values_of

FINISHED, DELETING, DELETED = SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED
PARTITIONS = [TopicIdPartition(bytes((number,)) * 16, f"topic-{number}", number) for number in range(4)]


def a_log(*partitions: TopicIdPartition) -> MetadataLog:
    log = MetadataLog(3)
    for partition in partitions or (A_PARTITION,):
        log.follow(partition)
    return log


def take(log: MetadataLog, data: bytes) -> None:
    asyncio.run(log.take(data))


def test_entries_are_known_when_the_end_at_the_time_of_following_is_reached() -> None:
    log = a_log()
    first, second = values_of(an_entry(1, 0, 100), FINISHED)
    assert log.cache_of(A_PARTITION) is None
    log.on_end_offset(2)
    take(log, batches_of([first]))
    assert log.cache_of(A_PARTITION) is None
    take(log, batches_of([second], 1))
    cache = log.cache_of(A_PARTITION)
    assert cache is not None
    assert cache.find(0, 50) is not None


def test_an_empty_partition_is_known_at_once() -> None:
    log = a_log()
    log.on_end_offset(0)
    assert log.cache_of(A_PARTITION) is not None


def test_partitions_that_are_not_followed_are_not_known() -> None:
    log = a_log()
    log.on_end_offset(0)
    assert log.cache_of(PARTITIONS[1]) is None
    log.unfollow(A_PARTITION, 5.0)
    assert log.cache_of(A_PARTITION) is None
    log.follow(A_PARTITION)
    assert log.cache_of(A_PARTITION) is not None
    log.unfollow(A_PARTITION, 5.0)
    log.drop_hidden(4.0)
    assert log.followed
    log.drop_hidden(5.0)
    assert not log.followed


def test_a_partition_that_is_followed_later_is_read_from_the_start_while_the_others_stay_known() -> None:
    other = PARTITIONS[1]
    values = [*values_of(an_entry(1, 0, 100), FINISHED), *values_of(an_entry(2, 0, 100, partition=other), FINISHED)]
    log = a_log()
    log.on_end_offset(4)
    take(log, batches_of(values))
    log.follow(other)
    assert log.position == 0
    assert log.is_behind
    assert log.cache_of(A_PARTITION) is not None
    assert log.cache_of(other) is None
    log.on_end_offset(4)
    take(log, batches_of(values))
    cache = log.cache_of(other)
    assert cache is not None
    assert len(cache) == 1
    assert log.skipped == 0


def test_bytes_that_were_fetched_before_a_partition_was_followed_are_not_applied() -> None:
    async def follow_meanwhile() -> MetadataLog:
        log = a_log()
        entries = [an_entry(number, number, number) for number in range(50_000)]
        data = batches_of([values_of(entry)[0] for entry in entries])
        taking = asyncio.ensure_future(log.take(data))
        first = asyncio.get_running_loop().create_future()
        log.when_applied(0, first)
        await first
        assert log.position < len(entries)
        log.follow(PARTITIONS[1])
        await taking
        return log

    log = asyncio.run(follow_meanwhile())
    assert log.position == 0


def test_writers_learn_when_their_record_is_applied() -> None:
    async def write() -> tuple[bool, bool, bool]:
        loop = asyncio.get_running_loop()
        log = a_log()
        first, second = loop.create_future(), loop.create_future()
        log.when_applied(0, first)
        log.when_applied(1, second)
        await log.take(batches_of([values_of(an_entry(1, 0, 100))[0]]))
        done = first.done(), second.done()
        late = loop.create_future()
        log.when_applied(0, late)
        return *done, late.done()

    assert asyncio.run(write()) == (True, False, True)


def test_records_that_cannot_be_read_or_do_not_fit_are_left_out_with_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    log = a_log()
    added, finished = values_of(an_entry(1, 0, 100), FINISHED)
    never_added = values_of(an_entry(2, 0, 100), DELETING)[1]
    bad = [b"", b"\x01\x00\x05" + added[3:], b"rubbish", never_added, added[:-1] + b"\x07"]
    take(log, batches_of([*bad, added, *bad, finished, *bad * 10]))
    log.on_end_offset(log.position)
    cache = log.cache_of(A_PARTITION)
    assert cache is not None
    assert cache.find(0, 50) is not None
    assert log.skipped == 12 * len(bad)
    assert len(caplog.records) == NAMED + 1


def test_a_batch_with_a_wrong_checksum_stops_the_reader_in_front_of_it() -> None:
    log = a_log()
    values = values_of(an_entry(1, 0, 100), FINISHED)
    data = bytearray(batches_of(values))
    data[-2] ^= 1
    with pytest.raises(CorruptRecord):
        take(log, bytes(data))
    assert log.position == 1


def test_batches_of_other_writers_are_read_too() -> None:
    log = a_log()
    values = values_of(an_entry(1, 0, 100), FINISHED)
    records = [Record(offset, 5, b"a key", value) for offset, value in enumerate(values)]
    take(log, bytes(build_batch(records, CompressionCodec.GZIP)))
    log.on_end_offset(2)
    cache = log.cache_of(A_PARTITION)
    assert cache is not None
    assert cache.find(0, 50) is not None


def test_null_values_and_markers_are_no_records_of_segments() -> None:
    log = a_log()
    take(log, bytes(build_batch([Record(0, 5, b"a key", None)])) + bytes(build_batch([Record(1, 5, b"\x00" * 4, b"x")], is_control=True)))
    assert (log.position, log.skipped) == (2, 1)


@pytest.mark.parametrize("how", ["same", "shorter", "rewritten", "rewritten by one batch"])
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_log_that_lost_records_is_noticed_although_its_position_had_moved_back(is_restored: bool, how: str) -> None:
    """A snapshot, or what was read, is up to date only for those that were followed then. Another partition is read from the start."""
    other = PARTITIONS[1]
    lost = values_of(an_entry(2, 101, 200), FINISHED)
    kept = [*values_of(an_entry(1, 0, 100), FINISHED), *values_of(an_entry(3, 0, 100, partition=other), FINISHED)]
    before = a_log()
    before.on_end_offset(6)
    take(before, batches_of([*kept, *lost]))
    if is_restored:
        log = a_log(A_PARTITION, other)
        log.restore(before.position, before.last_epoch, [each.cache for each in before.followed.values()], 0.0)
    else:
        log = before
        log.follow(other)
    assert (log.position, log.last_epoch) == (0, -1)

    new = values_of(an_entry(4, 101, 200), FINISHED)
    tails = {"same": batches_of(lost, 4), "shorter": b"", "rewritten": batches_of(new, 4, leader_epoch=2)}
    one_batch = build_batch([Record(offset, 0, None, value) for offset, value in enumerate([*new, *new], 4)], partition_leader_epoch=2)
    tail = tails.get(how, bytes(one_batch))
    end = {"same": 6, "shorter": 4, "rewritten": 6}.get(how, 8)
    for _ in range(2):  # a log that lost records is read once more
        log.on_end_offset(end)
        take(log, batches_of(kept) + tail)

    known = {number for number in range(5) if (cache := log.cache_of(A_PARTITION)) and cache.get(number.to_bytes(16, "big"))}
    assert known == {"same": {1, 2}, "shorter": {1}}.get(how, {1, 4})
    assert log.cache_of(other) is not None


def test_another_topic_of_the_name_does_not_take_entries_away() -> None:
    log = a_log()
    take(log, batches_of(values_of(an_entry(1, 0, 100), FINISHED)))
    log.on_end_offset(2)
    log.begin_anew(0, keeps_entries=True)
    cache = log.cache_of(A_PARTITION)
    assert cache is not None
    assert len(cache) == 1
    log.begin_anew(0, keeps_entries=False)
    assert log.cache_of(A_PARTITION) is None


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Records of four partitions, interleaved."""
    lives = []
    for number in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 30))
        entry = an_entry(number, start, start + draw(st.integers(0, 30)), partition=draw(st.sampled_from(PARTITIONS)))
        states = (FINISHED, DELETING, DELETED)[: draw(st.integers(0, 3))]
        life = values_of(entry, *states)
        if states and draw(st.booleans()):
            life.insert(2, encode_update(an_update(entry, FINISHED, custom=with_mark(None, True))))
        lives.append(life)
    values = []
    while lives:
        life = draw(st.sampled_from(lives))
        values.append(life.pop(0))
        lives = [each for each in lives if each]
    return values


@given(histories(), st.lists(st.tuples(st.integers(0, len(PARTITIONS) - 1), st.integers(1, 5)), max_size=12))
@settings(deadline=None)
def test_any_order_of_following_and_reading_leads_to_the_same_entries(values: list[bytes], steps: list[tuple[int, int]]) -> None:
    whole = a_log(*PARTITIONS)
    take(whole, batches_of(values))
    log = MetadataLog(3)
    for number, count in steps:
        log.follow(PARTITIONS[number])
        take(log, batches_of(values[log.position : log.position + count], log.position))
    for partition in PARTITIONS:
        log.follow(partition)
    take(log, batches_of(values[log.position :], log.position))
    assert {place: state_of(each.cache) for place, each in log.followed.items()} == {
        place_of(partition): state_of(whole.followed[place_of(partition)].cache) for partition in PARTITIONS
    }
    assert log.skipped == whole.skipped == 0


@pytest.mark.parametrize("size", [0, 1, 60, 63, 64, 100, 127, 128, 200, 300, 1000, 1100, 8191, 8192, 20_000])
def test_the_reader_of_lone_records_agrees_with_that_of_all_records(size: int) -> None:
    value = bytes(number % 256 for number in range(size))
    data = batches_of([value], 2**40, 7)
    lone = lone_record(data, memoryview(data), 0)
    assert lone == ((2**40, 7, value, len(data)) if 64 <= size <= 1000 else None)


@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 400))
@settings(deadline=None)
def test_the_reader_of_lone_records_reads_nothing_else(at: int, byte: int, end: int) -> None:
    good = batches_of([b"v" * 100])
    data = (good[: at % len(good)] + bytes((byte,)) + good[at % len(good) + 1 :])[:end]
    lone = lone_record(data, memoryview(data), 0)
    if lone is not None:
        _, header = next(iter_batches(data))
        offset, leader_epoch, value, after = lone
        assert crc_is_valid(data)
        assert [(None, value)] == list(iter_keys_and_values(record_data(data, 0, header), header))
        assert (offset, leader_epoch, after) == (header.base_offset, header.partition_leader_epoch, header.size)
