"""The tasks of tiered storage follow the roles of a broker's replicas, and go on after failures."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from ottla.broker.remote.tasks import listen_to
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.replication.remote import remote_log_manager
from ottla.replication.remote.remote_log_manager import RemoteLogManager
from ottla.replication.remote.removals import MOST_APART_MS
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate
from ottla.storage.remote.ports import RemoteStoreDenied, RemoteStoreError
from tests.support.followers import until
from tests.support.remote_fakes import Parts
from tests.support.replicas import Replicas, metadata
from tests.support.tiered_replicas import TIERED, TieredReplica, follows, leads

STARTED, FINISHED, DELETING, _ = SegmentState


def run(
    scenario: Callable[[TieredReplica, RemoteLogManager], Coroutine[object, object, None]], replica: TieredReplica | None = None
) -> None:
    async def play() -> None:
        of_broker = replica or TieredReplica()
        settings = of_broker.services.settings
        settings.interval_ms = settings.backoff_ms = settings.backoff_max_ms = 5
        manager = RemoteLogManager(of_broker.services)
        try:
            async with asyncio.timeout(20):
                await scenario(of_broker, manager)
        finally:
            await manager.stop()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(play())


async def is_gone() -> bool:
    return True


def become_leader(replica: TieredReplica, manager: RemoteLogManager, epoch: int = 0) -> None:
    leads(replica.partition, epoch)
    manager.on_leadership_change(replica.partition)


def hold_calls(replica: TieredReplica, held: str | None = None) -> asyncio.Event:
    """Lets calls to the store wait for ever, those of this name or all. The event is set when the first one has begun."""
    begun = asyncio.Event()

    async def wait(call: str, entry: SegmentEntry) -> None:
        if held in (None, call):
            begun.set()
            await asyncio.Event().wait()

    replica.store.before = wait
    return begun


def test_a_leader_copies_what_is_appended_later() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        for records in (2, 3):
            replica.produce(records)
            await until(lambda: len(replica.ranges()) == len(replica.log.segments) - 1)
        assert replica.log.tier is not None
        assert replica.log.tier.copied == (3, 0)

    run(scenario)


def test_a_leader_that_lost_its_log_in_the_same_epoch_touches_neither_records_nor_copies(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(4)
        await until(lambda: len(replica.ranges()) == 3)
        await manager.stop()
        new = TieredReplica(metadata=replica.metadata, store=replica.store)
        new.services.settings.interval_ms = 5
        again = RemoteLogManager(new.services)
        become_leader(new, again)
        new.produce(1)
        counted = new.counters.partitions[new.log.topic_partition]
        await until(lambda: counted.lost_log_segments == 3)
        await until(lambda: replica.metadata.marked(TIERED) is not None)
        new.produce(9)  # its offsets are those of the copies, and higher
        published = len(replica.metadata.records)
        await until(lambda: "are not those of this log" in caplog.text)
        assert new.log.tier is not None
        assert not new.log.tier.has_all(0, 2, new.log.log_end_offset, new.log.leader_epochs.entries)
        await again.stop()
        assert new.log.tier.checked_epoch == 0
        for epoch in (0, 1):  # after a restart the log is longer than the lost one, or in another epoch
            new.log.tier.checked_epoch, new.log.tier.is_of_other_log = -1, False
            restarted = RemoteLogManager(new.services)
            become_leader(new, restarted, epoch)
            new.produce(2)
            await until(lambda epoch=epoch: new.log.tier.checked_epoch == epoch)
            counted = new.counters.partitions[new.log.topic_partition]
            await until(lambda counted=counted: counted.lost_log_segments == 3)
            assert not new.log.tier.has_all(0, 2, new.log.log_end_offset, new.log.leader_epochs.entries)
            await restarted.stop()
        assert len(replica.metadata.records) == published
        assert len(replica.ranges()) == 3

    run(scenario)
    assert caplog.text.count("are not those of this log") == 3, "once in each epoch of each process"


def test_a_follower_learns_what_is_copied_and_copies_nothing() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(3)
        await until(lambda: len(replica.ranges()) == 2)
        follower = TieredReplica(broker_id=2, metadata=replica.metadata, store=replica.store)
        follower.services.settings.interval_ms = 5
        follower.produce(3)
        others = RemoteLogManager(follower.services)
        follows(follower.partition, leader=1, epoch=0)
        others.on_leadership_change(follower.partition)
        assert follower.log.tier is not None
        tier = follower.log.tier
        await until(lambda: tier.copied == (1, 0))
        replica.produce(1)
        follower.produce(1)
        await until(lambda: tier.copied == (2, 0))
        assert {each.broker_id for each in replica.entries()} == {1}
        await others.stop()

    run(scenario)


def test_a_leader_that_becomes_follower_ends_its_copies() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        begun = hold_calls(replica)
        become_leader(replica, manager)
        replica.produce(2)
        await begun.wait()
        follows(replica.partition, leader=2, epoch=1)
        manager.on_leadership_change(replica.partition)
        assert len(replica.metadata.records) == 1
        become_leader(replica, manager, 2)
        await until(lambda: len(replica.metadata.records) == 2)  # a new copy: it is another leadership
        assert replica.ranges(STARTED) == [(0, 0), (0, 0)]

    run(scenario)


def test_a_store_that_is_down_is_tried_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        failures = 5

        async def fail(call: str, entry: SegmentEntry) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise RemoteStoreError("no connection")

        replica.store.before = fail
        become_leader(replica, manager)
        replica.produce(2)
        await until(lambda: replica.ranges() == [(0, 0)])
        assert len(replica.entries()) == 1
        lines = [record for record in caplog.records if "no connection" in record.getMessage()]
        assert len(lines) == 1
        assert lines[0].getMessage().startswith("topic-0: ")

    with caplog.at_level(logging.WARNING, logger=remote_log_manager.__name__):
        run(scenario)


def test_a_store_that_refuses_the_credentials_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        async def deny(call: str, entry: SegmentEntry) -> None:
            raise RemoteStoreDenied("403")

        replica.store.before = deny
        become_leader(replica, manager)
        replica.produce(2)
        await until(lambda: "check the credentials" in caplog.text)

    run(scenario)


def test_clocks_that_are_apart_are_an_error_line_and_copies_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        replica.store.clock_ms = replica.clock.now_ms() + 2 * MOST_APART_MS
        become_leader(replica, manager)
        replica.produce(3)
        await until(lambda: len(replica.ranges()) == 2)
        replica.log.increment_log_start_offset(2, "records are deleted")
        await until(lambda: "clocks of this broker and of the remote store differ" in caplog.text)
        replica.produce(1)
        await until(lambda: len(replica.ranges()) == 3)
        (line,) = (each for each in caplog.records if "clocks" in each.getMessage())
        assert line.levelname == "ERROR"

    run(scenario)


def test_tasks_wait_until_the_metadata_are_read() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        replica.metadata.ready = False
        become_leader(replica, manager)
        replica.produce(2)
        await until(lambda: replica.metadata.refused > 3)
        assert not replica.metadata.records
        replica.metadata.ready = True
        await until(lambda: replica.ranges() == [(0, 0)])

    run(scenario)


def test_a_new_leader_takes_the_log_start_of_the_remote_part() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(4)
        await until(lambda: len(replica.ranges()) == 3)
        replica.log.increment_log_start_offset(2, "test")
        await until(lambda: len(replica.ranges()) == 1)
        for broker_id, removed, log_start, copied in ((2, 2, 2, 1), (3, 0, 0, 3)):
            other = TieredReplica(broker_id=broker_id, metadata=replica.metadata, store=replica.store)
            other.services.settings.interval_ms = 5
            other.produce(4)
            for _ in range(removed):
                other.log.segments.remove(other.log.segments.first)
            others = RemoteLogManager(other.services)
            become_leader(other, others, broker_id)
            log = other.log
            await until(lambda log=log: log.tier is not None and log.tier.copied.offset == 2)
            await until(lambda log=log, start=log_start: log.log_start_offset == start)
            await until(lambda copied=copied: len(replica.ranges()) == copied)  # what it still has is copied again
            await others.stop()

    run(scenario)


def test_the_deletion_of_a_topic_removes_its_segments_although_the_store_is_down_for_a_while() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(4)
        await until(lambda: len(replica.ranges()) == 3)
        failures = 3

        async def fail(call: str, entry: SegmentEntry) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise RemoteStoreError("no connection")

        replica.store.before = fail
        copies = replica.entries()
        assert replica.counters.topics
        await manager.on_partitions_deleted([replica.partition.topic_partition])
        replica.partition.take_offline()
        manager.on_leadership_change(replica.partition)
        await until(lambda: TIERED not in replica.metadata.followed)
        assert {each.id for each in replica.forgotten} == {each.id for each in copies}
        assert not replica.counters.topics
        assert not replica.store.parts
        assert not replica.metadata.caches[TIERED].packed

    run(scenario)


def test_copies_go_when_a_controller_reports_the_deletion_and_not_when_a_topic_is_only_missing() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(3)
        await until(lambda: len(replica.ranges()) == 2)
        of_broker = Replicas()
        listen_to(of_broker.manager, manager)

        async def hear(leader: int) -> None:
            topic = metadata(TIERED.topic, TIERED.topic_id, p0=leader)
            await of_broker.manager.on_update_metadata(UpdateMetadataRequest(controller_epoch=1, topic_states=[topic]))

        await hear(1)
        assert await of_broker.manager.forget_topics(list(of_broker.cluster.topics.values()))
        assert not manager._deletions, "the metadata store may be an old copy"
        await hear(1)
        await hear(-2)
        assert manager._deletions == {TIERED}
        await until(lambda: not replica.store.parts)

    run(scenario)


def test_the_objects_of_a_cancelled_copy_are_removed_when_no_thread_can_write_them_any_more() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        begun = hold_calls(replica, "copy of the records")
        become_leader(replica, manager)
        replica.produce(2)
        await begun.wait()
        await manager.on_partitions_deleted([replica.partition.topic_partition])
        replica.partition.take_offline()
        manager.on_leadership_change(replica.partition)
        before = replica.metadata.questions
        await until(lambda: replica.metadata.questions > before + 3)
        assert replica.ranges(STARTED) == [(0, 0)]
        replica.services.being_copied.clear()
        await until(lambda: TIERED not in replica.metadata.followed)
        assert not replica.store.parts

    run(scenario)


def test_the_deletion_of_a_topic_removes_a_copy_that_is_finished_meanwhile() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(2)
        await until(lambda: len(replica.ranges()) == 1)
        (finished,) = replica.entries()
        late = replace(finished, id=SegmentId(TIERED, b"of a dead broker"), state=STARTED)
        await replica.metadata.add(late)
        replica.store.parts[late.id.uuid] = Parts()
        is_late = True

        async def finish(call: str, entry: SegmentEntry) -> None:
            nonlocal is_late
            if call == "delete" and is_late:
                is_late = False
                await replica.metadata.update(SegmentUpdate(late.id, 7, 0, FINISHED))

        replica.store.before = finish
        await manager.on_partitions_deleted([replica.partition.topic_partition])
        replica.partition.take_offline()
        manager.on_leadership_change(replica.partition)
        await until(lambda: TIERED not in replica.metadata.followed)
        assert not replica.store.parts
        assert not replica.metadata.caches[TIERED].packed

    run(scenario)


def test_what_a_topic_that_is_gone_has_left_is_removed_with_its_entries() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(3)
        await until(lambda: len(replica.ranges()) == 2)
        first = replica.entries()[0]
        unknown = replace(first, id=SegmentId(TIERED, b"not in any entry"))
        replica.store.parts[unknown.id.uuid] = Parts()
        manager.on_leftovers(TIERED, [unknown], is_gone)
        assert not manager._deletions, "the partition has a replica here"
        replica.partition.take_offline()
        manager.on_leadership_change(replica.partition)
        failures = 2

        async def fail(call: str, entry: SegmentEntry) -> None:
            nonlocal failures
            if entry.id == unknown.id and failures:
                failures -= 1
                raise RemoteStoreError("no connection")

        replica.store.before = fail
        for _ in range(2):  # the second listing finds them, too, if the removal takes long
            manager.on_leftovers(TIERED, [first, unknown], is_gone)
        await until(lambda: TIERED not in replica.metadata.followed)
        assert not replica.store.parts
        assert not replica.metadata.caches[TIERED].packed

    run(scenario)


def test_no_task_begins_after_the_stop() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        await manager.stop()
        manager.on_config_change(replica.partition)
        become_leader(replica, manager, 1)
        await manager.on_partitions_deleted([replica.partition.topic_partition])
        manager.on_leftovers(TIERED, [], is_gone)
        assert len(asyncio.all_tasks()) == 1

    run(scenario)


def test_the_bytes_of_a_copy_that_a_deposed_leader_gives_up_do_not_count() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        begun = hold_calls(replica)
        become_leader(replica, manager)
        replica.produce(2)
        await begun.wait()
        quota = replica.services.quota
        assert quota.bytes_per_second() > 0
        follows(replica.partition, leader=2, epoch=1)
        manager.on_leadership_change(replica.partition)
        await until(lambda: quota.bytes_per_second() == 0)

    run(scenario)


def test_a_topic_without_an_id_is_not_copied(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        replica.log.topic_id = bytes(16)
        become_leader(replica, manager)
        assert "topic-0: nothing is copied, because the topic has no id" in caplog.text
        replica.produce(2)
        assert not replica.metadata.records

    run(scenario)


def test_a_reassigned_partition_keeps_its_segments() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(4)
        await until(lambda: len(replica.ranges()) == 3)
        replica.partition.take_offline()
        manager.on_leadership_change(replica.partition)
        assert TIERED not in replica.metadata.followed
        assert len(replica.store.parts) == 3

    run(scenario)


def test_a_topic_that_gets_remote_storage_is_copied_from_then_on() -> None:
    async def scenario(replica: TieredReplica, manager: RemoteLogManager) -> None:
        become_leader(replica, manager)
        replica.produce(2)
        replica.topic_config["remote.storage.enable"] = "true"
        replica.log.update_config(replica.open().config)
        manager.on_config_change(replica.partition)
        await until(lambda: replica.ranges() == [(0, 0)])

    run(scenario, TieredReplica(remote_storage_enable="false"))
