"""Where a follower cuts its log: Kafka's table, and cutting without a stall."""

import asyncio
from itertools import pairwise

import pytest

from replication import truncation
from replication.truncation import TruncationPoint, truncate, truncation_point
from storage.partition_log import PartitionLog
from tests.support.batches import a_batch
from tests.support.filesystems import MemoryFileSystem
from tests.support.logs import a_context, a_log, append, read_all


def a_log_of(*epochs: tuple[int, int], **config: int) -> PartitionLog:
    """A log with so many records in each epoch."""
    log = a_log(**config)
    for epoch, records in epochs:
        if records == 0:
            log.assign_epoch(epoch, log.log_end_offset)
        for _ in range(records):
            append(log, epoch=epoch)
    return log


@pytest.mark.parametrize(
    ("epochs", "leader", "expected"),
    [
        # the leader's epoch is known here: the lower of both ends
        ([(1, 10)], (1, 6), TruncationPoint(6, True)),
        ([(1, 10)], (1, 15), TruncationPoint(10, True)),
        ([(1, 5), (2, 5)], (1, 8), TruncationPoint(5, True)),
        ([(1, 5), (2, 5)], (1, 3), TruncationPoint(3, True)),
        # it is not (KIP-279): our next lower epoch ends the common part at most, and the leader is asked about that one
        ([(1, 5), (3, 5)], (2, 8), TruncationPoint(5, False)),
        ([(1, 5), (3, 5)], (2, 3), TruncationPoint(5, False)),
        ([(0, 2), (1, 3), (4, 5)], (3, 20), TruncationPoint(5, False)),
        # below everything known here: our first epoch began where nothing can differ
        ([(3, 5)], (2, 4), TruncationPoint(0, True)),
        # our logs know nothing of epochs
        ([], (2, 4), TruncationPoint(0, True)),
        # the leader knows nothing of the epoch: back to where fetching began
        ([(1, 10)], (-1, -1), TruncationPoint(4, True)),
        # before 2.0 the leader does not tell which epoch it means
        ([(1, 10)], (-1, 6), TruncationPoint(6, True)),
        ([(1, 10)], (-1, 16), TruncationPoint(10, True)),
        # an epoch that began here without a record
        ([(1, 5), (3, 0)], (2, 8), TruncationPoint(5, False)),
    ],
)
def test_the_point_of_truncation(epochs: list[tuple[int, int]], leader: tuple[int, int], expected: TruncationPoint) -> None:
    assert truncation_point(a_log_of(*epochs), *leader, initial_offset=4) == expected


def test_an_epoch_that_is_newer_than_all_here_leaves_the_log_to_the_leaders_end() -> None:
    # end_offset_for_epoch cannot tell anything of an epoch beyond the latest
    assert truncation_point(a_log_of((1, 10)), 5, 8, initial_offset=10) == TruncationPoint(8, True)


def always() -> bool:
    return True


def test_a_large_cut_is_made_in_steps_that_each_leave_a_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "BYTES_PER_STEP", 2000)
    log = a_log(index_interval_bytes=200)
    for _ in range(100):
        append(log, a_batch(3, value_bytes=50))
    everything = read_all(log)
    ends: list[int] = []
    sizes: list[int] = []

    async def watch() -> None:
        task = asyncio.create_task(truncate(log, 30, always))
        while not task.done():
            await asyncio.sleep(0)
            ends.append(log.log_end_offset)
            sizes.append(log.size_bytes)
            assert everything.startswith(read_all(log))
            assert log.log_end_offset % 3 == 0
        assert await task

    asyncio.run(watch())

    assert log.log_end_offset == 30
    assert len(set(ends)) >= 8
    assert sorted(ends, reverse=True) == ends
    assert all(before - after <= 2600 for before, after in pairwise(sizes))


def test_segments_behind_the_cut_go_first_and_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "BYTES_PER_STEP", 500)
    log = a_log(segment_bytes=2000, index_interval_bytes=100)
    for _ in range(100):
        append(log, a_batch(1, value_bytes=50))
    first_bases = log.segments.bases
    everything = read_all(log)

    assert asyncio.run(truncate(log, 5, always))

    assert len(first_bases) > 3
    assert log.segments.bases == [0]
    assert log.log_end_offset == 5
    assert everything.startswith(read_all(log))


def test_a_truncation_ends_when_the_partition_is_no_longer_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "BYTES_PER_STEP", 2000)
    log = a_log(index_interval_bytes=200)
    for _ in range(100):
        append(log, a_batch(3, value_bytes=50))

    assert not asyncio.run(truncate(log, 30, lambda: log.log_end_offset > 200))

    assert 30 < log.log_end_offset <= 200
    assert read_all(log)


def test_a_log_that_was_cut_in_steps_opens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "BYTES_PER_STEP", 2000)
    context = a_context(MemoryFileSystem())
    log = a_log(context, index_interval_bytes=200)
    for _ in range(100):
        append(log, a_batch(3, value_bytes=50, producer_id=-1), epoch=2)
    asyncio.run(truncate(log, 100, always))
    kept = read_all(log)
    log.close_without_writing()

    again = a_log(context, clean=False)

    assert read_all(again) == kept


def test_nothing_to_cut_still_drops_an_epoch_that_began_at_the_end() -> None:
    log = a_log_of((1, 5), (3, 0))

    assert asyncio.run(truncate(log, 5, always))

    assert log.latest_epoch == 1
    assert log.log_end_offset == 5
