"""The short way of a plain batch into the log ends where the long way ends, or gives way to it with nothing done."""

import errno

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.records.batch import ATTRIBUTES_OFFSET, HEADER_SIZE, TRANSACTIONAL_MASK
from storage.errors import LogDirFailure, OutOfOrderSequence, StorageError
from storage.log.appended import Appended
from storage.log.context import LogContext
from storage.log.partition_log import PartitionLog
from storage.log.plain_append import NOT_PLAIN
from storage.validation.batch import check_request, validate_produce
from tests.support.batches import FIRST_TIMESTAMP, a_batch, with_bytes
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import ManualScheduler, a_context, a_log

VERSION = 11
NOW_MS = FIRST_TIMESTAMP + 1000
LAST_DELTA_OFFSET, MAX_TIMESTAMP_OFFSET, COUNT_OFFSET = 23, 35, 57
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CONFIGS: list[dict[str, str | int]] = [
    {},
    {"segment_bytes": 400, "index_interval_bytes": 0},
    {"segment_ms": 50, "index_interval_bytes": 100},
    {"max_message_bytes": 150},
    {"flush_messages": 3},
    {"cleanup_policy": "compact"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_after_max_ms": 500},
    {"compression_type": "lz4"},
]


def long_way(log: PartitionLog, batch: bytes | bytearray, epoch: int = 0, version: int = VERSION) -> Appended | None:
    """As the handler does; None when it would take a worker, or be refused because no transaction is open."""
    records = memoryview(bytearray(batch))
    header = check_request(records, version)
    if header.attributes & TRANSACTIONAL_MASK:
        return None
    validated = validate_produce(records, log.rules, NOW_MS, header)
    return None if validated.needs_worker else log.append_as_leader(validated, epoch, NOW_MS)


def short_way(log: PartitionLog, batch: bytes | bytearray, epoch: int = 0, version: int = VERSION) -> int:
    return log.append_plain(memoryview(bytearray(batch)), epoch, NOW_MS, version)


def led(**config: str | int) -> PartitionLog:
    """A log that is led in epoch 0."""
    log = a_log(**config)
    log.on_new_leader_epoch(0)
    return log


def contents(log: PartitionLog) -> dict[str, bytes]:
    """All its files, closed."""
    log.close()
    filesystem = log.context.filesystem
    return {name: filesystem.read_file(f"{log.directory}/{name}") for name in filesystem.list_directory(log.directory)}


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    """What a client may send: mostly sound, of a few producers, sometimes with some bytes changed."""
    count = draw(st.sampled_from([1, 1, 2, 4, 5, 9]))
    times = draw(st.lists(st.integers(FIRST_TIMESTAMP - 100, FIRST_TIMESTAMP + 2000), min_size=count, max_size=count))
    batch = a_batch(
        count,
        draw(st.sampled_from(CODECS)),
        base_offset=draw(st.sampled_from([0] * 9 + [1])),
        timestamps=times,
        producer_id=draw(st.sampled_from([-1, -1, 7, 8])),
        producer_epoch=draw(st.sampled_from([0, 0, 1])),
        base_sequence=draw(st.sampled_from([0, 0, 1, 2, 5, -1])),
        transactional=draw(st.sampled_from([False] * 9 + [True])),
        control=draw(st.sampled_from([False] * 9 + [True])),
    )
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, min(HEADER_SIZE + 8, len(batch) - 1)))
        changed = bytes([draw(st.integers(0, 255))])
        if draw(st.booleans()):
            return with_bytes(batch, at, changed)
        batch[at : at + 1] = changed
    return batch


WRONG_TWICE = with_bytes(a_batch(1, producer_id=7, producer_epoch=0, base_sequence=-1), HEADER_SIZE, b"\x7e")
"""In its sequence and in the length of its record."""


@settings(deadline=None, max_examples=150)
@example(config={}, sent=[(WRONG_TWICE, 0, VERSION)])
@given(
    config=st.sampled_from(CONFIGS),
    sent=st.lists(st.tuples(batches(), st.sampled_from([0, 0, 0, 1]), st.sampled_from([6, VERSION])), max_size=12),
)
def test_both_ways_leave_the_same_log_and_the_same_errors(config: dict[str, str | int], sent: list[tuple[bytearray, int, int]]) -> None:
    with_both, with_one = led(**config), led(**config)
    for batch, epoch, version in sent:
        outcomes = []
        for log in (with_both, with_one):
            before = log.log_end_offset
            try:
                first = short_way(log, batch, epoch, version) if log is with_both else NOT_PLAIN
                if first == NOT_PLAIN:
                    assert log.log_end_offset == before
                    appended = long_way(log, batch, epoch, version)
                    outcomes.append(None if appended is None else (appended.first_offset, log.log_end_offset))
                else:
                    outcomes.append((first, log.log_end_offset))
            except StorageError as error:
                assert log.log_end_offset == before
                outcomes.append((type(error).__name__, str(error)))
        assert outcomes[0] == outcomes[1]
        assert with_both.flush_due_offset == with_one.flush_due_offset
    assert contents(with_both) == contents(with_one)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 4, 5, 100])
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_a_plain_batch_takes_the_short_way(codec: str, count: int, producer_id: int) -> None:
    log = led()
    for number in range(3):
        batch = a_batch(count, codec, producer_id=producer_id, base_sequence=number * count if producer_id >= 0 else None)
        assert short_way(log, batch) == number * count
    assert log.log_end_offset == 3 * count


@pytest.mark.parametrize("config", CONFIGS[5:], ids=str)
def test_a_topic_that_changes_or_reads_batches_takes_the_long_way(config: dict[str, str | int]) -> None:
    assert short_way(led(**config), a_batch(5)) == NOT_PLAIN


@pytest.mark.parametrize(
    ("batch", "version"),
    [
        (a_batch(transactional=True, producer_id=7), VERSION),
        (a_batch(control=True), VERSION),
        (a_batch(log_append_time=NOW_MS), VERSION),
        (a_batch(base_offset=1), VERSION),
        (a_batch(5, "zstd"), 6),
        (a_batch() + a_batch(), VERSION),
        (a_batch()[:-1], VERSION),
        (a_batch()[:60], VERSION),
        (bytearray(), VERSION),
        (bytearray(a_batch()[:-1]) + b"\x01", VERSION),
        (with_bytes(a_batch(5, "lz4"), HEADER_SIZE, b"\0"), VERSION),
        (with_bytes(a_batch(5), ATTRIBUTES_OFFSET + 1, b"\x05"), VERSION),
        (with_bytes(a_batch(), MAX_TIMESTAMP_OFFSET, (FIRST_TIMESTAMP + 1).to_bytes(8, "big")), VERSION),
        (with_bytes(with_bytes(a_batch(5), LAST_DELTA_OFFSET, b"\0\0\x03\xe7"), COUNT_OFFSET, b"\0\0\x03\xe8"), VERSION),
    ],
)
def test_anything_else_takes_the_long_way(batch: bytearray, version: int) -> None:
    log = led()
    assert short_way(log, batch, version=version) == NOT_PLAIN
    assert log.log_end_offset == 0
    assert log.active_segment.size == 0


def test_a_batch_of_a_new_leader_epoch_and_one_that_rolls_take_the_long_way() -> None:
    log = led(segment_bytes=200)
    assert short_way(log, a_batch(), epoch=1) == NOT_PLAIN
    assert short_way(log, a_batch()) == 0
    assert short_way(log, a_batch()) == 1
    assert short_way(log, a_batch()) == NOT_PLAIN


def test_a_duplicate_takes_the_long_way_and_a_gap_is_refused() -> None:
    log = led()
    assert short_way(log, a_batch(2, producer_id=7)) == 0
    assert short_way(log, a_batch(2, producer_id=7)) == NOT_PLAIN
    duplicate = long_way(log, a_batch(2, producer_id=7))
    assert duplicate is not None
    assert duplicate.duplicate
    with pytest.raises(OutOfOrderSequence):
        short_way(log, a_batch(2, producer_id=7, base_sequence=5))
    assert log.log_end_offset == 2


def test_a_disk_that_refuses_leaves_the_log_as_it_was() -> None:
    faulty = FaultyFileSystem(MemoryFileSystem())
    log = a_log(LogContext(faulty, ManualClock(), ManualScheduler()))
    log.on_new_leader_epoch(0)
    assert short_way(log, a_batch(producer_id=7)) == 0
    faulty.error_number = errno.ENOSPC
    faulty.fail_at = faulty.calls + 1
    with pytest.raises(LogDirFailure):
        short_way(log, a_batch(producer_id=7, base_sequence=1))
    assert log.log_end_offset == 1
    assert log.producer_state.state.producers[7].batches[-1][0] == 0


def test_what_was_appended_is_due_to_be_flushed_as_on_the_long_way() -> None:
    context = a_context()
    log = a_log(context, flush_messages=2)
    log.on_new_leader_epoch(0)
    short_way(log, a_batch())
    assert log.flush_due_offset == 0
    short_way(log, a_batch())
    assert log.flush_due_offset == 2
