"""All replicas learn that the copies are those of a lost log, and none of them takes the copies for its own records."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from ottla.replication.remote.remote_log_manager import RemoteLogManager
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.remote.entries import SegmentState, SegmentUpdate
from ottla.storage.remote.object_layout import with_mark
from ottla.storage.remote.ports import MetadataWriteFailed
from ottla.storage.remote.tier import OTHER_LOG
from tests.support.batches import a_batch, a_record
from tests.support.followers import until
from tests.support.logs import append
from tests.support.remote_fakes import Record
from tests.support.tiered_replicas import TIERED, TieredReplica, follows, leads

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
COPIED = 3


class Node:
    """A broker with a replica of the partition."""

    def __init__(self, lost: TieredReplica, broker_id: int = 1, replica: TieredReplica | None = None) -> None:
        """Shares metadata and store with `lost`."""
        self.replica = replica or TieredReplica(broker_id=broker_id, metadata=lost.metadata, store=lost.store, local_retention_bytes=1)
        settings = self.replica.services.settings
        settings.interval_ms = settings.backoff_ms = settings.backoff_max_ms = 5
        self.manager = RemoteLogManager(self.replica.services)

    def produce(self, records: int) -> None:
        """Appends records of its own."""
        for number in range(records):
            log = self.replica.log
            value = b"new%02d" % number
            append(log, a_batch([a_record(value=value)]), epoch=self.replica.partition.leader_epoch)
            log.update_high_watermark(log.log_end_offset)

    def lead(self, epoch: int) -> None:
        leads(self.replica.partition, epoch)
        self.manager.on_leadership_change(self.replica.partition)

    def follow(self, leader: int, epoch: int) -> None:
        follows(self.replica.partition, leader, epoch)
        self.manager.on_leadership_change(self.replica.partition)

    async def rounds(self) -> None:
        """Several rounds of its tasks."""
        seen = self.replica.metadata.questions
        await until(lambda: self.replica.metadata.questions > seen + 20)

    def retain(self) -> int:
        """Deletes what local retention allows. Returns where its log begins then."""
        delete_old_segments(self.replica.log, self.replica.clock.now_ms())
        return self.replica.log.local_log_start_offset

    @property
    def is_other(self) -> bool:
        tier = self.replica.log.tier
        assert tier is not None
        return tier.is_of_other_log

    def has_file(self) -> bool:
        return self.replica.filesystem.exists(f"{self.replica.log.directory}/{OTHER_LOG}")


def play(scenario: Callable[[TieredReplica], Coroutine[object, object, None]], **config: int) -> None:
    async def all_of_it() -> None:
        async with asyncio.timeout(30):
            lost = TieredReplica(**config)
            lost.lead()
            lost.produce(COPIED + 1)
            await lost.copy_all()
            assert len(lost.ranges()) == COPIED
            await scenario(lost)

    asyncio.run(all_of_it())


def test_a_follower_learns_from_the_leader_that_the_copies_are_of_a_lost_log_and_knows_it_when_it_leads() -> None:
    async def scenario(lost: TieredReplica) -> None:
        leader, follower = Node(lost), Node(lost, 2)
        leader.lead(0)
        leader.produce(1)
        await until(lambda: leader.is_other and lost.metadata.marked(TIERED) is not None)
        follower.follow(1, 0)
        follower.produce(9)  # as the leader has them, with offsets of the copies and higher
        await until(lambda: follower.is_other)
        assert follower.retain() == 0
        calls = len(lost.store.calls)

        await leader.manager.stop()
        follower.lead(1)
        await until(follower.has_file)
        follower.produce(2)
        await follower.rounds()
        assert (follower.is_other, follower.retain(), len(lost.store.calls)) == (True, 0, calls)
        assert len(lost.ranges()) == COPIED
        await follower.manager.stop()

        again = Node(lost, 3)  # a replica that was never there, after a restart of everything
        again.lead(2)
        again.produce(12)
        await until(lambda: again.is_other)
        assert again.retain() == 0
        await again.manager.stop()

    play(scenario)


def test_a_log_that_grows_before_the_metadata_are_read_is_another_log_all_the_same() -> None:
    async def scenario(lost: TieredReplica) -> None:
        node = Node(lost)
        lost.metadata.ready = False
        node.lead(0)
        node.produce(9)
        lost.metadata.ready = True
        await until(lambda: node.is_other)
        assert node.retain() == 0
        await node.manager.stop()

    play(scenario)


def test_the_lost_log_is_accepted_when_a_backup_of_it_comes_back() -> None:
    async def scenario(lost: TieredReplica) -> None:
        node = Node(lost)
        node.lead(0)
        node.produce(1)
        await until(lambda: lost.metadata.marked(TIERED) is not None)
        await node.manager.stop()

        backup = Node(lost, replica=lost)
        backup.lead(1)
        await until(lambda: lost.metadata.marked(TIERED) is None)
        lost.produce(2)
        await until(lambda: len(lost.ranges()) == COPIED + 2)
        assert not backup.has_file()
        await backup.manager.stop()

    play(scenario)


def test_a_backup_is_accepted_whose_copied_segments_local_retention_had_removed() -> None:
    async def scenario(lost: TieredReplica) -> None:
        delete_old_segments(lost.log, lost.clock.now_ms())
        assert lost.log.local_log_start_offset == COPIED
        node = Node(lost)
        node.lead(0)
        node.produce(1)
        await until(lambda: lost.metadata.marked(TIERED) is not None)
        await node.manager.stop()

        backup = Node(lost, replica=lost)
        backup.lead(1)
        await until(lambda: lost.log.tier is not None and lost.log.tier.checked_epoch == 1)
        assert (backup.is_other, backup.has_file()) == (False, False)
        await until(lambda: lost.metadata.marked(TIERED) is None)
        lost.produce(2)
        await until(lambda: len(lost.ranges()) == COPIED + 2)
        await backup.manager.stop()

    play(scenario, local_retention_bytes=1)


def test_a_log_that_is_longer_than_the_lost_one_and_has_lost_its_begin_by_retention_is_another_log_still() -> None:
    async def scenario(lost: TieredReplica) -> None:
        node = Node(lost)
        node.lead(0)
        node.produce(1)
        await until(lambda: lost.metadata.marked(TIERED) is not None)
        await node.manager.stop()

        again = Node(lost, 3)
        leads(again.replica.partition, 0)
        again.produce(COPIED + 3)
        again.replica.log.delete_old_segments(
            lambda segment, following: following is not None and following.base_offset <= COPIED + 1, "retention.ms"
        )
        assert again.replica.log.log_start_offset == COPIED + 1
        again.lead(1)
        await until(lambda: again.is_other)
        assert again.has_file()
        await again.manager.stop()

    play(scenario)


def test_a_mark_of_a_former_leader_that_arrives_late_does_not_hold_the_followers_back_for_ever() -> None:
    async def scenario(lost: TieredReplica) -> None:
        leader = Node(lost, replica=lost)
        leader.lead(1)
        await until(lambda: lost.log.tier is not None and lost.log.tier.checked_epoch == 1)
        (first, *_) = lost.entries()
        await lost.metadata.update(SegmentUpdate(first.id, 9, 0, FINISHED, with_mark(first.custom, is_of_other_log=True)))
        await until(lambda: lost.metadata.marked(TIERED) is None)
        assert (leader.is_other, leader.has_file()) == (False, False)
        await leader.manager.stop()

    play(scenario)


def test_a_follower_that_has_the_backup_by_now_does_not_call_it_another_log_when_it_leads() -> None:
    async def scenario(lost: TieredReplica) -> None:
        former = TieredReplica(broker_id=3, metadata=lost.metadata, store=lost.store, clock=lost.clock)
        leads(former.partition, 0)
        former.produce(COPIED + 1)  # the same records, as it has fetched them from the backup
        former.log.files.small_files.replace(OTHER_LOG, b"0 0\n")
        node = Node(lost, replica=former)
        node.lead(2)
        await until(lambda: former.log.tier is not None and former.log.tier.checked_epoch == 2)
        assert (node.is_other, node.has_file(), lost.metadata.marked(TIERED)) == (False, False, None)
        await node.manager.stop()

    play(scenario)


def test_a_mark_that_cannot_be_written_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(lost: TieredReplica) -> None:
        failures = 3

        async def fail(record: Record) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise MetadataWriteFailed("no answer")

        node = Node(lost)
        lost.metadata.before = fail
        node.lead(0)
        node.produce(9)
        await until(lambda: lost.metadata.marked(TIERED) is not None)
        assert not failures
        assert node.has_file()
        await node.manager.stop()

    play(scenario)
    assert caplog.text.count("are not those of this log") == 1
