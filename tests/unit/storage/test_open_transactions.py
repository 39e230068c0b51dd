"""Logs with open and ended transactions: the last stable offset and the aborted transactions, whatever is done to the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.storage.log.lookups import aborted_transactions
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import delete_old_segments
from tests.support.batches import FIRST_TIMESTAMP, a_batch, a_run
from tests.support.cleaners import clean_log
from tests.support.compacted_logs import a_writer, committed_of, latest_of, values_of
from tests.support.filesystems import MemoryFileSystem
from tests.support.log_manager import Disks, a_future_log
from tests.support.logs import T0, a_config, a_context, a_log, append, follow, read_all
from tests.support.transactions import Transactions, a_marker_batch

Step = tuple[str, int]
PRODUCERS = (5, 6, 7)
HOUR_MS = 3_600_000
steps = st.lists(
    st.tuples(st.sampled_from(["write", "write", "write", "commit", "abort", "plain", "roll"]), st.sampled_from(PRODUCERS)), max_size=25
)
histories = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def next_sequence(log: PartitionLog, producer_id: int) -> int:
    return next((entry.last_sequence + 1 for entry in log.active_producers() if entry.producer_id == producer_id), 0)


def take(log: PartitionLog, model: Transactions, step: Step) -> None:
    """One step of a history; each batch has one record."""
    what, producer_id = step
    offset = log.log_end_offset
    if what == "write":
        sequence = next_sequence(log, producer_id)
        run = a_run(a_batch(producer_id=producer_id, base_sequence=sequence, transactional=True))
        run.guard = log.begin_verification(producer_id, sequence, 0)
        log.append(run, 0, log.context.clock.now_ms(), AppendOrigin.CLIENT)
        model.write(producer_id, offset)
    elif what == "plain":
        append(log, a_batch())
    elif what == "roll":
        if log.segments.active.size:
            log.roll()
    else:
        append(log, a_marker_batch(producer_id, commit=what == "commit"), origin=AppendOrigin.COORDINATOR)
        model.end(producer_id, offset, is_aborted=what == "abort")


def written(history: list[Step], filesystem: MemoryFileSystem | None = None) -> tuple[PartitionLog, Transactions]:
    log, model = a_log(a_context(filesystem)), Transactions()
    for step in history:
        take(log, model, step)
    log.update_high_watermark(log.log_end_offset)
    return log, model


def close_properly(log: PartitionLog) -> None:
    log.close()


def kill(log: PartitionLog) -> None:
    log.close_without_writing()


# -- leaders and followers -----------------------------------------------------------------------------------------------


@histories
@given(steps)
def test_leaders_and_followers_have_the_same_last_stable_offset_at_every_high_watermark(history: list[Step]) -> None:
    leader, model = written(history)
    follower = a_log()
    follow(follower, read_all(leader), 0)
    model.check(leader)
    for high_watermark in range(leader.log_end_offset + 1):
        follower.update_high_watermark(high_watermark)
        model.check(follower)
    assert {repr(entry) for entry in follower.active_producers()} == {repr(entry) for entry in leader.active_producers()}


# -- truncation and recovery ---------------------------------------------------------------------------------------------


@histories
@given(steps, st.integers(0, 25), steps)
def test_a_log_that_was_cut_across_transactions_goes_on_as_if_the_rest_had_never_been(
    history: list[Step], cut: int, further: list[Step]
) -> None:
    log, model = written(history)
    cut = min(cut, log.log_end_offset)
    log.truncations.truncate_to(cut)
    model.cut(cut)
    model.check(log)
    for step in further:
        take(log, model, step)
        log.update_high_watermark(log.log_end_offset)
        model.check(log)


@pytest.mark.slow
@pytest.mark.parametrize("end", [close_properly, kill])
def test_transactions_survive_a_restart(end: Callable[[PartitionLog], None]) -> None:
    @histories
    @given(steps, steps)
    def check(history: list[Step], further: list[Step]) -> None:
        filesystem = MemoryFileSystem()
        log, model = written(history, filesystem)
        end(log)
        log = a_log(a_context(filesystem), clean=end is close_properly)
        log.update_high_watermark(log.log_end_offset)
        model.check(log)
        for step in further:
            take(log, model, step)
        log.update_high_watermark(log.log_end_offset)
        model.check(log)

    check()


# -- deleted records -----------------------------------------------------------------------------------------------------


@histories
@given(steps, st.integers(0, 25))
def test_deleted_records_change_nothing_for_readers_behind_them(history: list[Step], start: int) -> None:
    log, model = written(history)
    log.increment_log_start_offset(min(start, log.high_watermark), "test")
    model.check(log)
    for producer_id in PRODUCERS:
        take(log, model, ("abort", producer_id))
    log.update_high_watermark(log.log_end_offset)
    model.check(log)
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("end", [close_properly, kill])
def test_a_transaction_whose_first_records_were_deleted_is_open_after_a_restart(end: Callable[[PartitionLog], None]) -> None:
    filesystem = MemoryFileSystem()
    log, _ = written([("write", 5), ("plain", 0), ("write", 5), ("plain", 0)], filesystem)
    log.increment_log_start_offset(1, "test")
    assert log.last_stable_offset == 1
    end(log)
    log = a_log(a_context(filesystem), clean=end is close_properly, log_start_offset=1)
    log.update_high_watermark(4)
    assert log.last_stable_offset in (1, 2), "nothing of the transaction stands at 1, which only a snapshot does not know"
    append(log, a_marker_batch(5, commit=False), origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5
    (aborted,) = aborted_transactions(log, 1, 5)
    assert (aborted.producer_id, aborted.last_offset) == (5, 4)
    assert aborted.first_offset <= 2


@pytest.mark.parametrize("end", [None, close_properly, kill])
def test_retention_takes_the_beginning_of_an_open_transaction_and_leaves_it_open(end: Callable[[PartitionLog], None] | None) -> None:
    filesystem = MemoryFileSystem()
    roll = ("roll", 0)
    log, _ = written([("write", 5), roll, ("plain", 0), ("write", 6), roll, ("plain", 0), roll, ("write", 5)], filesystem)
    log.update_config(a_config(retention_bytes=sum(segment.size for segment in list(log.segments)[2:])))
    assert delete_old_segments(log, FIRST_TIMESTAMP) == 2
    start = log.log_start_offset
    assert log.last_stable_offset == start == 3
    if end is not None:
        end(log)
        log = a_log(a_context(filesystem), clean=end is close_properly, log_start_offset=start, recovery_point=4)
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == start
    for producer_id in (5, 6):
        append(log, a_marker_batch(producer_id, commit=False), origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert [(each.producer_id, each.first_offset) for each in aborted_transactions(log, start, log.log_end_offset)] == [(5, 0), (6, 2)]


# -- other directories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("further", [[], [("commit", 5), ("abort", 6)], [("abort", 5), ("write", 6), ("roll", 0)]])
def test_transactions_move_to_another_directory_with_their_log(further: list[Step]) -> None:
    disks = Disks(log_dirs="/a,/b")
    manager = disks.start()
    log, model = manager.get_or_create(T0, is_new=True, log_dir="/a"), Transactions()
    for step in [("write", 5), ("plain", 0), ("write", 6), ("abort", 5), ("roll", 0), ("write", 5), ("commit", 7), ("write", 7)]:
        take(log, model, step)
    log.update_high_watermark(log.log_end_offset)
    a_future_log(manager, log, "/b")
    manager.moves.start(T0)
    for step in further:  # while it moves
        take(log, model, step)
    log.update_high_watermark(log.log_end_offset)
    disks.settle()
    moved = manager.get(T0)
    assert moved is not None
    assert moved.log_dir == "/b"
    assert read_all(moved) == read_all(log)
    model.check(moved)
    for producer_id in PRODUCERS:
        take(moved, model, ("abort", producer_id))
    moved.update_high_watermark(moved.log_end_offset)
    model.check(moved)
    manager.shutdown()
    again = disks.start().get(T0)
    assert again is not None
    model.check(again)


# -- compaction ----------------------------------------------------------------------------------------------------------


def test_the_cleaner_leaves_what_is_not_below_the_last_stable_offset() -> None:
    writer = a_writer()
    writer.write([(b"a", b"1")])
    writer.write([(b"a", b"in an open transaction")], producer_id=5, transactional=True)
    writer.write([(b"a", b"2")])
    writer.write([(b"a", b"3")])
    writer.roll()
    assert writer.log.last_stable_offset == 1
    before = read_all(writer.log)
    clean_log(writer.log, now_ms=FIRST_TIMESTAMP + HOUR_MS)
    assert read_all(writer.log) == before
    writer.end(5, commit=False)
    writer.write([(b"b", b"of another key")])
    writer.roll()
    clean_log(writer.log, now_ms=FIRST_TIMESTAMP + HOUR_MS)
    assert latest_of(committed_of(writer.log))[b"a"].value == b"3"
    assert values_of(writer.log) == {b"a": b"3", b"b": b"of another key"}
    assert writer.log.last_stable_offset == writer.log.log_end_offset
