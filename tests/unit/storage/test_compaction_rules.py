"""What stays of a batch, rule by rule."""

import random
from contextlib import suppress

import pytest

from ottla.protocol.records.batch import BatchHeader, TimestampType
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.records.reader import Record
from ottla.storage.cleaner.choice import log_to_clean
from ottla.storage.cleaner.offset_map import MAX_LIVE_OFFSETS, OffsetMap
from ottla.storage.cleaner.run import clean, group_segments
from ottla.storage.cleaner.task import CleaningTask
from ottla.storage.cleaner.worker import Throttle
from ottla.storage.disk.file_names import file_name
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.segment import Segment
from tests.support.batches import FIRST_TIMESTAMP, a_batch
from tests.support.cleaners import LIMITS, InlineCleaner, clean_log, ports
from tests.support.compacted_logs import Writer, a_writer, batches_of, records_of
from tests.support.filesystems import MemoryFileSystem
from tests.support.logs import a_config

RETENTION_MS = 86_400_000
NOW = FIRST_TIMESTAMP + 1000


def _headers(writer: Writer) -> list[BatchHeader]:
    return [header for header, _ in batches_of(writer.log)]


def _clean(writer: Writer, now_ms: int = NOW) -> list[tuple[BatchHeader, list[Record]]]:
    writer.roll()
    clean_log(writer.log, now_ms=now_ms)
    return batches_of(writer.log)


def test_a_tombstone_stays_until_its_delete_horizon_and_then_goes() -> None:
    writer = a_writer()
    writer.write([(b"a", b"1"), (b"b", b"2")])
    writer.write([(b"a", None), (b"c", b"3")])
    writer.write([(b"z", b"the last batch stays in any case")])
    tombstone = Record(2, FIRST_TIMESTAMP + 2, b"a", None)
    for now_ms in (NOW, NOW + RETENTION_MS - 1):
        header, records = _clean(writer, now_ms)[1]
        assert tombstone in records
        assert header.delete_horizon_ms == NOW + RETENTION_MS
        assert header.max_timestamp == FIRST_TIMESTAMP + 3
    header, records = _clean(writer, NOW + RETENTION_MS)[1]
    assert records == [Record(3, FIRST_TIMESTAMP + 3, b"c", b"3")]
    assert header.delete_horizon_ms == NOW + RETENTION_MS
    assert (header.base_offset, header.last_offset) == (2, 3)


def test_a_marker_stays_until_its_records_are_gone_and_its_delete_horizon_is_over() -> None:
    writer = a_writer()
    writer.write([(b"a", b"aborted")], producer_id=1, transactional=True)
    writer.end(1, commit=False)
    writer.write([(b"a", b"committed")], producer_id=2, transactional=True)
    writer.end(2, commit=True)
    for producer_id in (1, 2):  # so that the batches above are not the producers' last
        writer.write([(b"a", b"later")], producer_id=producer_id, transactional=True)
        writer.end(producer_id, commit=True)
    writer.write([(b"z", b"last")])
    kept = [(header.base_offset, header.delete_horizon_ms) for header, _ in _clean(writer)]
    # The first time the cleaner saw records of both transactions.
    assert kept[:2] == [(1, None), (3, None)]
    assert writer.log.segments.first.transaction_index.entries()[0].first_offset == 0
    kept = [(header.base_offset, header.delete_horizon_ms) for header, _ in _clean(writer)]
    assert kept[:2] == [(1, NOW + RETENTION_MS), (3, NOW + RETENTION_MS)]
    assert not writer.log.segments.first.transaction_index.entries()
    kept = [(header.base_offset, header.delete_horizon_ms) for header, _ in _clean(writer, NOW + RETENTION_MS)]
    assert kept[0][0] not in (1, 3)


def test_the_last_batch_of_a_producer_stays_as_a_header_until_it_writes_again() -> None:
    writer = a_writer()
    writer.write([(b"a", b"1"), (b"b", b"1")], producer_id=9, codec="zstd")
    writer.write([(b"a", b"2"), (b"b", b"2")])
    writer.roll()
    header, records = _clean(writer)[0]
    assert not records
    assert (header.record_count, header.size, header.base_offset, header.last_sequence) == (0, 61, 0, 1)
    writer.write([(b"c", b"1")], producer_id=9)
    assert _clean(writer)[0][0].base_offset == 2


def test_the_last_batch_of_what_was_cleaned_stays_as_a_header() -> None:
    writer = a_writer()
    writer.write([(b"a", b"1")])
    writer.write([(None, b"no key")])
    headers = [(header.base_offset, header.record_count) for header, _ in _clean(writer)]
    assert headers == [(0, 1), (1, 0)]
    assert writer.log.log_end_offset == 2


def test_a_batch_of_log_append_time_keeps_its_time() -> None:
    writer = a_writer()
    writer.write([(b"a", b"1"), (b"b", b"1")], log_append_time=FIRST_TIMESTAMP + 77)
    writer.write([(b"a", b"2")])
    header, records = _clean(writer)[0]
    assert records == [Record(1, FIRST_TIMESTAMP + 77, b"b", b"1")]
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, FIRST_TIMESTAMP + 77)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_loses_records_keeps_its_codec_and_all_else(codec: str) -> None:
    writer = a_writer()
    writer.write([(b"a", b"1"), (b"b", b"1" * 200), (b"c", b"1")], codec=codec, producer_id=4)
    before = _headers(writer)[0]
    writer.write([(b"a", b"2")])
    header, records = _clean(writer)[0]
    assert [record.offset for record in records] == [1, 2]
    changed = {"batch_length": 0, "crc": 0, "base_timestamp": 0, "record_count": 0}
    assert header._replace(**changed) == before._replace(**changed)


def test_a_map_that_is_full_leaves_the_rest_for_the_next_time() -> None:
    writer = a_writer()
    for at in range(40):
        writer.write([(b"key-%d" % at, b"v")])
    writer.write([(b"key-%d" % at, b"w") for at in range(40)])
    writer.roll()
    tight = LIMITS._replace(map_bytes=24 * 10)
    clean_to = 0
    rounds = []
    while clean_to < 80:
        stats = clean_log(writer.log, clean_to, limits=tight)
        assert stats.end_offset > clean_to
        assert stats.buffer_utilization <= 0.9
        clean_to = stats.end_offset
        rounds.append(clean_to)
    assert rounds[0] == 9
    assert [record.offset for record in records_of(writer.log)] == list(range(40, 80))


def test_records_that_break_the_format_end_the_cleaning_and_leave_the_log_as_it_was() -> None:
    writer = a_writer()
    writer.write([(b"a", b"1"), (b"b", b"1")])
    writer.roll()
    writer.log.segments.first.file.pwrite(b"\xff\xff", 61)
    with pytest.raises(RecordFormatError):
        clean_log(writer.log)
    assert not [name for name in writer.log.context.filesystem.list_directory(writer.log.directory) if "cleaned" in name]


def _clean_until_the_broker_is_gone(check_number: int) -> bool:
    """Another broker's worker has a file of the same name when a check finds that the broker is gone. False if there are fewer checks."""
    writer = a_writer()
    for value in (b"1", b"2", b"3"):
        writer.write([(b"a", value), (b"b", value)])
        writer.roll()
    log = writer.log
    filesystem, path = log.context.filesystem, f"{log.directory}/{file_name(0, '.log')}.cleaned"
    count = 0

    def check() -> None:
        nonlocal count
        count += 1
        if count == check_number:
            if filesystem.exists(path):
                filesystem.unlink(path)
            filesystem.open(path, create=True).write(b"another's")
            raise SystemExit

    job = CleaningTask(log_to_clean(log, None, NOW), InlineCleaner(filesystem), LIMITS, NOW).job_with_producers()
    with suppress(SystemExit):
        for _ in clean(job, ports(filesystem, check)):
            pass
    if count < check_number:
        return False
    assert filesystem.read_file(path) == b"another's"
    return True


def test_a_worker_whose_broker_is_gone_removes_and_replaces_no_file() -> None:
    checks = 0
    while _clean_until_the_broker_is_gone(checks + 1):
        checks += 1
    assert checks > 6


@pytest.mark.slow
def test_the_map_agrees_with_a_dict_while_it_grows() -> None:
    rng = random.Random(1)
    offset_map = OffsetMap(24 * 40_000, 1000)
    expected: dict[bytes, int] = {}
    for offset in range(1000, 60_000):
        key = b"%d" % rng.randrange(30_000)
        offset_map.put(key, offset)
        expected[key] = offset
    assert offset_map.size == len(expected)
    assert all(offset_map.get(key) == offset for key, offset in expected.items())
    assert offset_map.get(b"absent") == -1
    offset_map.finish()
    live = offset_map.live_in(1000, 59_999)
    assert live is not None
    assert {1000 + at for at, kind in enumerate(live) if kind} == set(expected.values())
    assert offset_map.live_in(999, 1000) is None
    assert offset_map.live_in(1000, 60_000) is None


def test_a_map_can_be_filled_to_its_last_slot() -> None:
    offset_map = OffsetMap(24 * 101)
    for offset in range(101):
        offset_map.put(b"%d" % offset * 20, offset)
    assert (offset_map.size, offset_map.utilization) == (101, 1.0)
    assert [offset_map.get(b"%d" % offset * 20) for offset in range(101)] == list(range(101))
    assert offset_map.get(b"absent") == -1


def test_offsets_in_a_batch_need_not_be_in_order() -> None:
    writer = a_writer()
    keys = (b"a", b"b", b"c", b"d")
    odd = [Record(offset, FIRST_TIMESTAMP, key, b"1") for offset, key in zip((0, 2, 1, 3), keys, strict=True)]
    writer.append(a_batch(odd, "lz4", leader_epoch=0))
    writer.write([(b"b", b"2"), (b"d", b"2")])
    _clean(writer)
    assert [(record.offset, record.key) for record in records_of(writer.log)] == [(0, b"a"), (1, b"c"), (4, b"b"), (5, b"d")]


def test_offsets_far_apart_take_no_memory() -> None:
    offset_map = OffsetMap(24 * 100)
    offset_map.put(b"a", 5)
    offset_map.put(b"b", 1 << 40)
    offset_map.finish()
    assert offset_map.live_in(0, 4) == bytearray(5)
    assert offset_map.live_in(5, MAX_LIVE_OFFSETS - 1) is not None
    assert (offset_map.get(b"a"), offset_map.get(b"b")) == (5, 1 << 40)
    assert offset_map.live_in(1 << 40, 1 << 40) is None


def test_segments_are_put_together_as_long_as_they_fit() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/data")
    settings = LogSettings(a_config(segment_bytes=1000, segment_index_bytes=1000))

    def segment(base_offset: int, size: int) -> Segment:
        filesystem.open(f"/data/{file_name(base_offset, '.log')}", create=True).truncate(size)
        return Segment(filesystem, "/data", base_offset, settings, now_ms=0)

    far = 2**31
    segments = [
        segment(0, 600),
        segment(10, 400),
        segment(20, 1),
        segment(30, 900),
        segment(far, 10),
        segment(far + 30, 0),
        segment(3 * far, 10),
    ]
    groups = [[each.base_offset for each in group] for group in group_segments(segments, settings, 3 * far + 1)]
    assert groups == [[0, 10], [20, 30], [far, far + 30], [3 * far]]


def test_bytes_beyond_the_rate_are_waited_for() -> None:
    slept: list[float] = []
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    throttle = Throttle(1000, lambda: now, sleep)
    for _ in range(10):
        throttle(500)
    assert sum(slept) == pytest.approx(5)
    now += 100
    throttle(1)
    assert len(slept) == 10
