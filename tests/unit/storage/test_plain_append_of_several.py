"""Batches that are appended at once leave the log that they leave one by one, or give way to that with nothing done."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import LogDirFailure, StorageError
from storage.log.context import LogContext
from storage.log.partition_log import PartitionLog
from storage.log.plain_append import NOT_PLAIN
from tests.support.batches import FIRST_TIMESTAMP, a_batch, with_bytes
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import ManualScheduler, a_log
from tests.unit.storage.test_plain_append import CONFIGS, NOW_MS, VERSION, batches, contents, led, long_way, short_way


def at_once(log: PartitionLog, *sent: bytes | bytearray, epoch: int = 0) -> list[int]:
    first_offsets, size = log.append_several_plain([memoryview(bytearray(batch)) for batch in sent], epoch, NOW_MS, VERSION)
    assert size == (sum(map(len, sent)) if first_offsets else 0)
    return first_offsets


def one_by_one(log: PartitionLog, *sent: bytes | bytearray) -> list[tuple[object, ...] | None]:
    """What became of each: (first offset, log end offset), or the error."""
    outcomes: list[tuple[object, ...] | None] = []
    for batch in sent:
        try:
            first = short_way(log, batch)
            if first == NOT_PLAIN:
                appended = long_way(log, batch)
                outcomes.append(None if appended is None else (appended.first_offset, log.log_end_offset))
            else:
                outcomes.append((first, log.log_end_offset))
        except StorageError as error:
            outcomes.append((type(error).__name__, str(error)))
    return outcomes


def numbered(*sequences: int, count: int = 2, producer_id: int = 7, epoch: int = 0) -> list[bytearray]:
    """Batches of `count` records with these base sequences."""
    return [a_batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence) for sequence in sequences]


@settings(deadline=None, max_examples=150)
@given(
    config=st.sampled_from([*CONFIGS, {"segment_bytes": 2000, "index_interval_bytes": 100}, {"segment_index_bytes": 48}]),
    sent=st.lists(st.lists(batches(), min_size=1, max_size=4), max_size=6),
)
def test_at_once_and_one_by_one_leave_the_same_log_and_the_same_errors(config: dict[str, str | int], sent: list[list[bytearray]]) -> None:
    with_both, with_one = led(**config), led(**config)
    for together in sent:
        before = with_both.log_end_offset
        first_offsets: list[int] = []
        if len(together) > 1:
            try:
                first_offsets = at_once(with_both, *together)
            except StorageError:
                assert with_both.log_end_offset == before
        ends = [*first_offsets[1:], with_both.log_end_offset]
        outcomes = list(zip(first_offsets, ends, strict=True)) if first_offsets else one_by_one(with_both, *together)
        assert outcomes == one_by_one(with_one, *together)
        assert with_both.flush_due_offset == with_one.flush_due_offset
        assert with_both.active_segment.size == with_one.active_segment.size
    assert contents(with_both) == contents(with_one)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=16),
    st.sampled_from(["none", "lz4"]),
    st.sampled_from([-1, 7]),
    st.sampled_from([0, 100, 4096]),
)
def test_sound_batches_are_taken_at_once(counts: list[int], codec: str, producer_id: int, index_interval_bytes: int) -> None:
    with_both, with_one = (led(index_interval_bytes=index_interval_bytes) for _ in range(2))
    sent = []
    sequence = 0
    for number, count in enumerate((1, *counts)):
        times = [FIRST_TIMESTAMP + 10 * number + at for at in range(count)]
        sent.append(a_batch(count, codec, timestamps=times, producer_id=producer_id, base_sequence=sequence if producer_id >= 0 else None))
        sequence += count
    for log in (with_both, with_one):
        assert short_way(log, sent[0]) == 0
    assert at_once(with_both, *sent[1:]) == [short_way(with_one, batch) for batch in sent[1:]]
    assert with_both.log_end_offset == sum(counts) + 1
    assert contents(with_both) == contents(with_one)


@pytest.mark.parametrize(
    "together",
    [
        [a_batch(), a_batch(transactional=True, producer_id=7)],
        [a_batch(), with_bytes(a_batch(5), 21, b"\0\x05")],
        [a_batch(), bytearray(a_batch()[:-1]) + b"\x01"],
        [a_batch(), *numbered(0)],
        [*numbered(0), a_batch()],
        [*numbered(0), *numbered(2, producer_id=8)],
        [*numbered(0), *numbered(2, epoch=1)],
        numbered(0, 0),
        numbered(0, 3),
        numbered(0, 2, 2),
        numbered(-1, 1),
    ],
)
def test_what_differs_or_is_not_plain_is_left_to_be_appended_one_by_one(together: list[bytearray]) -> None:
    log = led()
    assert short_way(log, a_batch()) == 0
    size = log.active_segment.size
    assert at_once(log, *together) == []
    assert (log.log_end_offset, log.active_segment.size) == (1, size)


def test_sequences_wrap_between_batches() -> None:
    log = led()
    assert short_way(log, a_batch(2, producer_id=7, base_sequence=2**31 - 4)) == 0
    assert at_once(log, *numbered(2**31 - 2, 0)) == [2, 4]
    assert at_once(log, *numbered(2**31 - 2, 0)) == []  # sent before
    assert short_way(log, a_batch(producer_id=7, base_sequence=2)) == 6


def test_the_beginning_and_the_end_of_a_segment_are_for_one_batch() -> None:
    log = led(segment_bytes=4 * len(a_batch()))
    together = [a_batch(), a_batch()]
    assert at_once(log, *together) == []
    assert short_way(log, together[0]) == 0
    assert at_once(log, *together) == [1, 2]
    assert at_once(log, *together) == []
    assert one_by_one(log, *together) == [(3, 4), (4, 5)]
    assert log.active_segment.base_offset == 4


def test_a_flush_that_is_due_comes_where_it_would() -> None:
    log = led(flush_messages=3)
    assert short_way(log, a_batch()) == 0
    assert at_once(log, a_batch(), a_batch()) == []
    assert one_by_one(log, a_batch(), a_batch()) == [(1, 2), (2, 3)]
    assert log.flush_due_offset == 3
    assert at_once(log, a_batch(), a_batch()) == [3, 4]
    assert log.flush_due_offset == 3


@pytest.mark.parametrize("limit", [2**63 - 1, 2**63 + 7])
def test_limits_that_are_never_reached_may_be_larger_than_any_offset(limit: int) -> None:
    log = led(segment_ms=2**63 - 1, flush_messages=2**63 - 1)
    assert short_way(log, a_batch()) == 0
    log.next_flush_offset = limit  # what flush.messages says, counted from where a restart found the log's end
    assert at_once(log, a_batch(), a_batch()) == [1, 2]


def test_another_leader_epoch_is_for_one_batch() -> None:
    log = led()
    assert short_way(log, a_batch()) == 0
    assert at_once(log, a_batch(), a_batch(), epoch=1) == []


@pytest.mark.parametrize("fails", ["pwrite", "write_out"])
def test_a_disk_that_refuses_leaves_the_log_as_it_was(fails: str) -> None:
    faulty = FaultyFileSystem(MemoryFileSystem())
    log = a_log(LogContext(faulty, ManualClock(), ManualScheduler()), index_interval_bytes=0)
    log.on_new_leader_epoch(0)
    assert short_way(log, a_batch(producer_id=7)) == 0
    segment = log.active_segment
    before = segment.size, segment.offset_index.entries, segment.time_index.entries, segment.max_timestamp
    faulty.error_number = errno.ENOSPC
    if fails == "pwrite":
        faulty.fails_if = lambda name, path: name == "pwrite" and path.endswith(".log")
    else:
        segment.offset_index._tail += bytes(4096 - 8)  # the next entry goes to the disk
        faulty.fails_if = lambda name, path: name == "pwrite" and path.endswith(".index")
    with pytest.raises(LogDirFailure):
        at_once(log, *numbered(1, 3))
    assert log.log_end_offset == 1
    assert log.producer_state.state.producers[7].batches[-1][0] == 0
    assert (segment.size, segment.offset_index.entries, segment.time_index.entries, segment.max_timestamp) == before
    assert faulty.size(segment.path) == segment.size
