"""What a log knows of its producers when it is opened again: the last five batches of each, though a snapshot has only the last."""

import pytest

from ottla.storage.errors import OutOfOrderSequence
from ottla.storage.log.context import LogContext
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.producer_replay import TAIL_BYTES
from tests.support.batches import a_batch
from tests.support.clocks import ManualClock
from tests.support.logs import a_context, a_log, append

A, B = 1, 2
HALF = TAIL_BYTES // 2


def write(log: PartitionLog, producer_id: int, sequence: int, *, epoch: int = 0, value_bytes: int = 5) -> tuple[int, bool]:
    """(first offset, whether it stood there already) of a batch of one record."""
    now_ms = log.context.clock.now_ms()
    batch = a_batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, timestamps=[now_ms], value_bytes=value_bytes)
    appended = append(log, batch)
    return appended.first_offset, appended.is_duplicate


def reopened(log: PartitionLog, *, clean: bool) -> PartitionLog:
    log.close()
    return a_log(LogContext(log.context.filesystem, log.context.clock, log.context.scheduler), clean=clean, segment_bytes=HALF)


def a_segmented_log() -> PartitionLog:
    return a_log(a_context(clock=ManualClock()), segment_bytes=HALF)


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_batches_are_known_after_each_start(clean: bool) -> None:
    log = a_segmented_log()
    for sequence in range(8):
        assert write(log, A, sequence) == (2 * sequence, False)
        assert write(log, B, sequence) == (2 * sequence + 1, False)
    for _ in range(2):
        log = reopened(log, clean=clean)
        for sequence in range(3, 8):
            assert write(log, A, sequence) == (2 * sequence, True)
            assert write(log, B, sequence) == (2 * sequence + 1, True)
        with pytest.raises(OutOfOrderSequence):
            write(log, A, 2)


@pytest.mark.parametrize("clean", [True, False])
def test_batches_of_a_former_epoch_are_not_mixed_with_the_present_ones(clean: bool) -> None:
    log = a_segmented_log()
    for sequence in range(4):
        write(log, A, sequence)
    for sequence in range(3):
        write(log, A, sequence, epoch=1)
    log = reopened(log, clean=clean)
    assert [write(log, A, sequence, epoch=1) for sequence in range(4)] == [(4, True), (5, True), (6, True), (7, False)]


@pytest.mark.parametrize("clean", [True, False])
def test_batches_are_found_in_the_segment_before_and_no_further_back_than_the_tail(clean: bool) -> None:
    log = a_segmented_log()
    write(log, B, 0)
    write(log, B, 1)
    for sequence in range(8):
        write(log, A, sequence, value_bytes=HALF // 3)
    assert len(log.segments) > 3
    log = reopened(log, clean=clean)
    assert [write(log, A, sequence)[1] for sequence in (5, 6, 7)] == [True] * 3
    with pytest.raises(OutOfOrderSequence):
        write(log, B, 0)
    assert write(log, B, 1) == (1, True)
    assert write(log, B, 2) == (10, False)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [bytes(100), bytes(8) + (30).to_bytes(4, "big") + bytes(100)], ids=["zeros", "old message"])
@pytest.mark.parametrize("forgets_snapshots", [False, True])
def test_damage_in_a_flushed_segment_costs_what_stood_behind_it_there_and_no_more(
    clean: bool, damage: bytes, forgets_snapshots: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_segmented_log()
    for sequence in range(3):
        write(log, A, sequence, value_bytes=HALF - 100)
    assert len(log.segments) == 3
    log.close()
    filesystem = log.context.filesystem
    path = log.segments.first.path
    file = filesystem.open(path)
    file.pwrite(damage, file.size())
    file.close()
    for name in filesystem.list_directory(log.directory):
        if forgets_snapshots and name.endswith(".snapshot"):
            filesystem.unlink(f"{log.directory}/{name}")
    log = a_log(a_context(filesystem), clean=clean, segment_bytes=HALF, recovery_point=3)
    assert log.log_end_offset == 3
    if not forgets_snapshots:
        assert write(log, A, 2, value_bytes=HALF - 100) == (2, True)
    assert write(log, A, 3) == (3, False)
    assert (f"{path}: damaged in what was flushed" in caplog.text) == (forgets_snapshots and not clean)
