"""A deposed leader that does not know it yet copies while the next leader does: both have their own objects, and each record is read."""

import asyncio
from random import Random

import pytest

from ottla.replication.remote.positions import CopiesOf, refresh
from tests.support.logs import follow
from tests.support.remote_fakes import MemoryMetadata
from tests.support.tiered_replicas import TIERED, TieredReplica, follows

RECORDS = 6


def two_leaders(seed: int) -> tuple[TieredReplica, TieredReplica]:
    """The leaders of the epochs 0 and 1, with equal logs, one store and one topic of metadata. Their steps come in a random order."""
    random = Random(seed)
    old = TieredReplica(broker_id=1)
    new = TieredReplica(broker_id=2, metadata=MemoryMetadata(old.metadata.caches), clock=old.clock)
    new.store.parts = old.store.parts

    async def wait(*_: object) -> None:
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)

    for replica in (old, new):
        replica.store.before = wait
        replica.metadata.before = replica.metadata.after = wait
    old.lead(0)
    old.produce(RECORDS)
    for offset in range(RECORDS):
        region = old.log.read(offset, 1, RECORDS, True).region
        assert region is not None
        follow(new.log, region.read(), 0)
    new.log.update_high_watermark(RECORDS)
    new.lead(1)
    new.produce(2)
    return old, new


@pytest.mark.parametrize("seed", range(20))
def test_two_leaders_that_copy_at_once_overwrite_nothing_and_lose_nothing(seed: int) -> None:
    old, new = two_leaders(seed)

    async def scenario() -> None:
        await asyncio.gather(old.copy_all(), new.copy_all())
        follows(old.partition, 2, 1)
        refresh(new.log, CopiesOf(new.metadata, TIERED))
        assert new.log.tier is not None
        assert new.log.tier.copied.offset == RECORDS
        uuids = {entry.id.uuid: entry.broker_id for entry in new.entries()}
        assert set(uuids.values()) == {1, 2}
        for offset in range(RECORDS + 1):
            epoch = new.log.leader_epochs.epoch_of(offset)
            assert epoch is not None
            entry = new.metadata.find(TIERED, epoch, offset)
            assert entry is not None
            segment = new.log.segments.floor(offset)
            assert segment is not None
            assert new.store.parts[entry.id.uuid].log == new.filesystem.read_file(segment.path)
        assert new.store.parts.keys() == uuids.keys()  # those that another copy replaced are known, too
        new.log.increment_log_start_offset(RECORDS + 1, "records are deleted")
        await new.expiry.run()
        assert not new.store.parts
        assert not new.entries()

    asyncio.run(scenario())
