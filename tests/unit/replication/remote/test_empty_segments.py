"""A closed segment without records, as the cleaner or a roll leaves it, is copied as every other, and holds nothing up."""

import asyncio
from collections.abc import Coroutine
from itertools import pairwise

from ottla.storage.log.retention import delete_old_segments
from ottla.storage.remote.entries import SegmentState
from ottla.storage.remote.ports import IndexKind
from tests.support.batches import a_batch
from tests.support.cleaners import clean_log
from tests.support.compacted_logs import Writer, a_writer
from tests.support.filesystems import MemoryFileSystem
from tests.support.logs import a_context, follow
from tests.support.tiered_replicas import TIERED, TieredReplica


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


def compacted(segments: int, *, empty: int) -> TieredReplica:
    """The leader of a log that was compacted, and lost all records of its first segments; now it has remote storage."""
    filesystem = MemoryFileSystem()
    writer = a_writer(a_context(filesystem))
    for number in range(segments):
        fill(writer, b"kept-%d" % number if number >= empty else b"lost")
    fill(writer, b"lost")
    clean_log(writer.log)
    writer.log.close()
    replica = TieredReplica(filesystem, segment_batches=5, local_retention_bytes=1)
    replica.lead()
    replica.produce(1)
    return replica


def fill(writer: Writer, key: bytes) -> None:
    """Writes a segment."""
    for number in range(3):
        writer.write([(b"%s-%d" % (key, number), b"v" * 100)])
    writer.roll()


def retain(replica: TieredReplica) -> list[int]:
    """Deletes what local retention allows. Returns the base offsets of the segments that stay."""
    delete_old_segments(replica.log, replica.clock.now_ms())
    return replica.log.segments.bases


def test_segments_that_compaction_has_emptied_are_copied_and_local_retention_goes_past_them() -> None:
    replica = compacted(4, empty=2)
    bases = replica.log.segments.bases
    assert [segment.size == 0 for segment in replica.log.segments][:3] == [True, True, False]
    assert retain(replica) == bases

    async def scenario() -> None:
        await replica.copy_all()
        assert replica.ranges() == [(base, following - 1) for base, following in pairwise(bases)]
        first = replica.entries()[0]
        assert first.size == 0
        assert replica.store.parts[first.id.uuid].log == replica.store.parts[first.id.uuid].indexes[IndexKind.OFFSET] == b""
        calls = len(replica.store.calls)
        await replica.copy_all()
        assert len(replica.store.calls) == calls
        assert retain(replica) == bases[-1:]
        assert replica.log.log_start_offset == 0

    run(scenario())


def test_local_retention_does_not_go_past_an_empty_segment_whose_copy_is_not_finished() -> None:
    replica = compacted(4, empty=2)
    bases = replica.log.segments.bases
    assert replica.copier is not None

    async def scenario() -> None:
        for number in range(2):
            assert retain(replica)[0] == bases[number]
            assert await replica.copier.copy_next()  # type: ignore[union-attr]  # it leads
        assert retain(replica)[0] == bases[2]

    run(scenario())


def test_a_segment_that_was_empty_when_it_was_rolled_is_copied() -> None:
    replica = TieredReplica(local_retention_bytes=1)
    replica.lead()
    replica.produce(2)
    replica.log.roll()
    far = 1 << 32  # offsets in a segment fit 31 bits, so a replica of a compacted log begins another one
    follow(replica.log, a_batch(base_offset=far, leader_epoch=0), 0)
    replica.produce(2)
    assert [segment.size == 0 for segment in replica.log.segments][:4] == [False, False, True, False]

    async def scenario() -> None:
        await replica.copy_all()
        assert replica.ranges() == [(0, 0), (1, 1), (2, far - 1), (far, far), (far + 1, far + 1)]
        assert retain(replica) == [far + 2]

    run(scenario())


def test_an_empty_segment_expires_with_those_before_it() -> None:
    replica = compacted(4, empty=2)

    async def scenario() -> None:
        await replica.copy_all()
        retain(replica)
        last = replica.log.log_end_offset
        replica.log.increment_log_start_offset(last, "test")
        await replica.expiry.run()
        assert not [each for each in replica.metadata.all_entries(TIERED) if each.state == SegmentState.COPY_SEGMENT_FINISHED]
        assert not replica.store.parts

    run(scenario())
