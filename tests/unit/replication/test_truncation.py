"""Where a follower cuts its log: Kafka's table, and cutting without a stall."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from ottla.replication.follower.truncation import TruncationPoint, truncate, truncation_point
from ottla.storage.errors import LogBeingTruncated, LogDirFailure
from ottla.storage.log.partition_log import PartitionLog
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import a_context, a_log, append


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


class HeldThread:
    """Runs what it is given when the test says so."""

    def __init__(self, log: PartitionLog) -> None:
        self.work: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        log.context.submit = lambda name, work, then: self.work.append((work, then))

    def run(self) -> None:
        work, then = self.work.pop(0)
        work()
        then(None)


def test_a_thread_cuts_and_who_asked_waits_for_it() -> None:
    log = a_log_of((1, 10))
    thread = HeldThread(log)

    async def cut() -> bool:
        task = asyncio.create_task(truncate(log, 3, always))
        await asyncio.sleep(0)
        assert log.log_end_offset == 3
        await asyncio.sleep(0)
        assert not task.done()
        thread.run()
        return await task

    assert asyncio.run(cut())
    assert log.truncations.current is None
    assert append(log, epoch=2).first_offset == 3


def test_a_cut_whose_asker_is_gone_is_finished() -> None:
    log = a_log_of((1, 10))
    thread = HeldThread(log)

    async def cut() -> None:
        task = asyncio.create_task(truncate(log, 3, always))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        thread.run()

    asyncio.run(cut())
    assert log.truncations.current is None
    assert append(log, epoch=2).first_offset == 3


def test_who_asked_hears_when_the_partition_is_no_longer_its_own() -> None:
    log = a_log_of((1, 10))

    assert not asyncio.run(truncate(log, 3, lambda: False))

    assert log.log_end_offset == 3


def test_a_cut_that_the_disk_refuses_is_a_failure_of_its_directory() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    log = a_log(a_context(filesystem))
    for _ in range(5):
        append(log, epoch=1)
    filesystem.fails_if = lambda name, path: name == "truncate"

    with pytest.raises(LogDirFailure):
        asyncio.run(truncate(log, 3, always))

    with pytest.raises(LogBeingTruncated):
        append(log, epoch=1)


def test_nothing_to_cut_still_drops_an_epoch_that_began_at_the_end() -> None:
    log = a_log_of((1, 5), (3, 0))

    assert asyncio.run(truncate(log, 5, always))

    assert log.latest_epoch == 1
    assert log.log_end_offset == 5
