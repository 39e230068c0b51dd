"""A snapshot of many producers is written by a thread, a piece at a time: what it holds, what waits for it, what a crash leaves of it."""

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.producers import snapshot as producer_snapshot
from ottla.storage.producers import state_manager as producer_state_manager
from ottla.storage.producers.snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.state import ProducerState
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.log_manager import Disks, topic
from tests.support.logs import append

T0 = TopicPartition("topic", 0)
MANY = 7


@pytest.fixture(autouse=True)
def _seven_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state_manager, "WRITTEN_AT_ONCE", 3)
    monkeypatch.setattr(producer_snapshot, "PRODUCERS_PER_STEP", 2)


def write(log: PartitionLog, producer_id: int, sequence: int) -> int:
    """One record; its offset."""
    return append(log, a_batch(1, producer_id=producer_id, base_sequence=sequence)).first_offset


def a_broker(filesystem: MemoryFileSystem | FaultyFileSystem | None = None, **config: str | int) -> tuple[Disks, LogManager, PartitionLog]:
    """A log of two segments that seven producers wrote to, all of it on the disk."""
    disks = Disks(filesystem or MemoryFileSystem())
    disks.topics["topic"] = dict(topic(**config))
    manager = disks.start()
    log = manager.get_or_create(T0, is_new=True)
    for producer_id in range(MANY):
        write(log, producer_id, 0)
    log.roll()
    disks.settle()
    for producer_id in range(MANY):
        write(log, producer_id, 1)
    log.update_high_watermark(log.log_end_offset)
    disks.settle()
    log.flush()
    return disks, manager, log


def sequences(log: PartitionLog) -> dict[int, int]:
    """The last sequence number of each producer."""
    return {entry.producer_id: entry.last_sequence for entry in log.active_producers()}


def snapshot(log: PartitionLog, offset: int) -> bytes:
    return log.context.filesystem.read_file(log.producer_state.snapshot_path(offset))


def steps(disks: Disks) -> Iterator[None]:
    """Does what was submitted, one after the other."""
    while disks.background.work:
        _, work, then = disks.background.work.pop(0)
        try:
            work()
        except OSError as error:
            then(error)
        else:
            then(None)
        yield


def test_a_roll_writes_no_producer_on_the_event_loop() -> None:
    disks, _, log = a_broker(FaultyFileSystem(MemoryFileSystem()))
    calls = disks.watch("write", "pwrite", "truncate", "sync")
    log.roll()
    assert not [path for path in calls if path.endswith(".snapshot")]
    disks.settle()
    assert [path for path in calls if path.endswith(".snapshot")]


def test_it_holds_the_producers_as_they_were_when_the_log_rolled() -> None:
    disks, _, log = a_broker()
    expected = encode_snapshot(log.active_producers())
    log.roll()
    for n, _ in enumerate(steps(disks)):
        write(log, 3, n + 2)
        write(log, 100 + n, 0)
    assert snapshot(log, 2 * MANY) == expected
    assert len(decode_snapshot(expected, "f")) == MANY


def test_producers_go_on_while_it_is_written() -> None:
    disks, _, log = a_broker()
    log.roll()
    offset = write(log, 3, 2)
    new = write(log, 50, 0)
    assert len(log.producer_state.state.producers) == MANY + 1
    for _ in range(2):
        assert append(log, a_batch(1, producer_id=3, base_sequence=2)).first_offset == offset
        assert append(log, a_batch(1, producer_id=3, base_sequence=1)).is_duplicate
        assert append(log, a_batch(1, producer_id=50, base_sequence=0)).first_offset == new
        assert sequences(log) == {**dict.fromkeys(range(MANY), 1), 3: 2, 50: 0}
        disks.settle()
    assert list(sequences(log)) == [*range(MANY), 50]


def test_nobody_is_forgotten_while_it_is_written() -> None:
    disks, _, log = a_broker()
    log.roll()
    before = sequences(log)
    log.producer_state.remove_expired_producers(1 << 60)
    assert sequences(log) == before
    disks.settle()
    assert log.producer_state.remove_expired_producers(1 << 60) == MANY


def test_the_log_is_flushed_when_it_is_complete() -> None:
    disks, _, log = a_broker()
    write(log, 0, 2)
    flushed = log.recovery_point
    log.roll()
    assert log.flushes.prepare(log.log_end_offset) is None
    assert log.recovery_point == flushed
    disks.settle()
    assert log.recovery_point == log.log_end_offset


def test_no_segment_is_deleted_before_it_is_complete() -> None:
    disks, _, log = a_broker()
    log.roll()
    assert log.delete_old_segments(lambda *_: True, "test") == 0
    disks.settle()
    assert log.delete_old_segments(lambda *_: True, "test") == 2


def test_a_log_that_loses_all_its_segments_loses_no_producer() -> None:
    disks, _, log = a_broker()
    assert log.delete_old_segments(lambda *_: True, "test") == 0
    disks.settle()
    assert log.delete_old_segments(lambda *_: True, "test") == 2
    disks.settle()
    again = Disks(disks.filesystem)
    assert isinstance(disks.filesystem, MemoryFileSystem)
    disks.filesystem.release_locks()
    found = again.start().get(T0)
    assert found is not None
    assert found.log_start_offset == 2 * MANY
    assert sequences(found) == dict.fromkeys(range(MANY), 1)


def test_a_second_roll_in_the_middle_waits_for_nothing() -> None:
    disks, _, log = a_broker(FaultyFileSystem(MemoryFileSystem()))
    first = encode_snapshot(log.active_producers())
    calls = disks.watch("write", "pwrite", "truncate", "sync")
    log.roll()
    write(log, 3, 2)
    write(log, 50, 0)
    second = encode_snapshot(log.active_producers())
    log.roll()
    write(log, 3, 3)
    write(log, 50, 1)
    assert not [path for path in calls if path.endswith(".snapshot")]
    disks.settle()
    assert snapshot(log, 2 * MANY) == first
    assert snapshot(log, 2 * MANY + 2) == second
    assert sequences(log) == {**dict.fromkeys(range(MANY), 1), 3: 3, 50: 1}
    assert log.recovery_point == 2 * MANY + 2


def test_of_many_rolls_in_the_middle_the_first_and_the_last_have_a_snapshot() -> None:
    disks, _, log = a_broker(FaultyFileSystem(MemoryFileSystem()))
    before = log.producer_state.snapshot_offsets
    log.roll()
    for n in range(4):
        write(log, 3, 2 + n)
        write(log, 50 + n, 0)
        log.roll()
    last = encode_snapshot(log.active_producers())
    write(log, 3, 6)
    disks.settle()
    end = 2 * MANY + 8
    assert log.producer_state.snapshot_offsets == [*before, 2 * MANY, end]
    assert snapshot(log, end) == last
    names = disks.filesystem.list_directory(log.directory)
    assert len([name for name in names if name.endswith(".snapshot")]) == len(before) + 2
    assert len(log.producer_state.state.producers) == MANY + 4


def test_a_segment_without_a_snapshot_does_not_become_the_first_before_the_next_one_is_on_the_disk() -> None:
    disks, _, log = a_broker()
    log.roll()
    for n in range(2):
        write(log, 3, 2 + n)
        log.roll()
    log.rolls.finish()
    log.update_high_watermark(log.log_end_offset)
    for _ in steps(disks):
        if log.recovery_point < log.log_end_offset:
            assert log.delete_old_segments(lambda *_: True, "test") == 0
    assert log.recovery_point == log.log_end_offset
    assert log.delete_old_segments(lambda segment, _: segment.base_offset <= 2 * MANY, "test") == 3
    assert log.log_start_offset == 2 * MANY + 1


def test_what_was_left_out_holds_up_no_deletion_after_a_truncation() -> None:
    disks, _, log = a_broker()
    log.roll()
    for n in range(2):
        write(log, 3, 2 + n)
        log.roll()
    disks.settle()
    log.truncations.truncate_to(2 * MANY)
    log.flush()
    log.update_high_watermark(log.log_end_offset)
    assert log.delete_old_segments(lambda segment, _: segment.base_offset < MANY, "test") == 1


@pytest.mark.parametrize("steps_before", range(4))
def test_a_stop_completes_it(steps_before: int) -> None:
    disks, manager, log = a_broker()
    expected = encode_snapshot(log.active_producers())
    log.roll()
    write(log, 3, 2)
    for _ in zip(range(steps_before), steps(disks), strict=False):
        pass
    manager.shutdown()
    assert snapshot(log, 2 * MANY) == expected
    found = disks.start().get(T0)
    assert found is not None
    assert sequences(found) == {**dict.fromkeys(range(MANY), 1), 3: 2}


@pytest.mark.parametrize("offset", [2 * MANY + 1, 2 * MANY, MANY + 2])
@pytest.mark.parametrize("in_thread", [True, False])
def test_a_truncation_in_the_middle_keeps_what_is_left_of_the_producers(offset: int, in_thread: bool) -> None:
    disks, _, log = a_broker()
    log.roll()
    write(log, 3, 2)
    write(log, 4, 2)
    if in_thread:
        ended: list[Exception | None] = []
        log.truncations.truncate_in_thread(offset, ended.append)
        disks.settle()
        assert ended == [None]
    else:
        log.truncations.truncate_to(offset)
        disks.settle()
    expected = dict.fromkeys(range(MANY), 1)
    if offset > 2 * MANY:
        expected[3] = 2
    if offset < 2 * MANY:
        expected.update(dict.fromkeys(range(2, MANY), 0))
    assert sequences(log) == expected
    assert write(log, 0, 2) == offset


def test_a_log_that_is_emptied_in_the_middle_forgets_everybody() -> None:
    disks, _, log = a_broker()
    log.roll()
    ended: list[Exception | None] = []
    log.truncations.truncate_fully_in_thread(100, ended.append)
    disks.settle()
    assert ended == [None]
    assert sequences(log) == {}
    assert write(log, 3, 77) == 100


def test_a_log_that_is_deleted_and_created_anew_meanwhile_has_no_producers() -> None:
    disks, manager, log = a_broker()
    log.roll()
    manager.delete(T0)
    anew = manager.get_or_create(T0, is_new=True)
    disks.background.advance(200_000)
    assert sequences(anew) == {}
    assert not [name for name in disks.filesystem.list_directory(anew.directory) if name.endswith(".snapshot")]
    assert manager.offline_log_dirs == []


def test_a_disk_that_refuses_it_takes_its_directory_offline() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    disks, manager, log = a_broker(filesystem)
    log.roll()
    filesystem.fails_if = lambda name, path: name == "pwrite" and path.endswith(".snapshot")
    disks.settle()
    assert manager.offline_log_dirs == ["/data"]
    assert log.is_closed


@pytest.mark.parametrize("steps_before", [0, 1, 2])
def test_it_is_begun_again_after_an_error_that_is_none_of_the_disk(steps_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disks, manager, log = a_broker()
    first = encode_snapshot(log.active_producers())
    log.roll()
    write(log, 3, 2)
    second = encode_snapshot(log.active_producers())
    log.roll()
    for _ in zip(range(steps_before), steps(disks), strict=False):
        pass
    with monkeypatch.context() as broken:
        broken.setattr(producer_snapshot, "_encode_entries", fail)
        disks.settle()
        with pytest.raises(MemoryError):
            log.flush()
    assert log.recovery_point == 2 * MANY
    assert manager.offline_log_dirs == []

    disks.background.advance(10_000)
    assert snapshot(log, 2 * MANY) == first
    assert snapshot(log, 2 * MANY + 1) == second
    assert log.recovery_point == 2 * MANY + 1
    write(log, 3, 3)
    third = encode_snapshot(log.active_producers())
    log.roll()
    disks.settle()
    assert snapshot(log, 2 * MANY + 2) == third


def fail(_: object) -> bytes:
    raise MemoryError


@pytest.mark.slow
@pytest.mark.parametrize("rolls", [1, 3])
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_step_forgets_no_producer(power: bool, rolls: int) -> None:
    for fail_at in range(1, 100):
        inner = MemoryFileSystem()
        filesystem = FaultyFileSystem(inner)
        disks, _, log = a_broker(filesystem)
        filesystem.calls = 0
        filesystem.fail_at = fail_at
        with contextlib.suppress(LogDirFailure, OSError):
            log.roll()
            for n in range(1, rolls):
                write(log, 3, 1 + n)
                log.roll()
        disks.background.run_work()
        is_over = filesystem.calls < fail_at
        inner.release_locks()
        again = Disks(inner.after_power_cut(fail_at) if power else inner)
        found = again.start().get(T0)
        assert found is not None
        assert {**sequences(found), 3: 1} == dict.fromkeys(range(MANY), 1)
        assert found.log_end_offset >= 2 * MANY
        if is_over:
            assert fail_at > 5
            return
    raise AssertionError("it never ended")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["write", "write", "write", "freeze", "unfreeze"])), max_size=40))
def test_frozen_producers_stay_and_the_others_never_notice(events: list[tuple[int, str]]) -> None:
    plain, state = ProducerState(T0), ProducerState(T0)
    frozen, was, again = None, "", ""
    for offset, (producer_id, event) in enumerate(events):
        if event == "freeze":
            now = repr(list(state.producers.values()))
            found = state.freeze()
            if frozen is None:
                frozen, was = found, now
            else:
                assert found is None
                again = now
        elif event == "unfreeze":
            frozen, was, again = state.unfreeze(), again, ""
        elif event == "write":
            for each in (plain, state):
                each.on_append(producer_id, 0, offset, offset, last_offset=offset, timestamp=offset, is_transactional=False)
        if frozen is not None:
            assert repr(list(frozen.values())) == was
        assert len(state.producers) == len(plain.producers)
        assert list(state.producers) == list(plain.producers)
        assert repr(list(state.producers.values())) == repr(list(plain.producers.values()))
