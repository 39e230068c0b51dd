"""A log with remote storage has two starts: local retention moves the local one, and only over what the store has."""

import asyncio

import pytest

from ottla.storage.disk.checkpoint import LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint
from ottla.storage.errors import OffsetMovedToTieredStorage, OffsetOutOfRange
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.log.truncations import RemoteRecords
from ottla.storage.remote.lineage import NOTHING_COPIED
from ottla.storage.remote.tier import BROKERS_TOPICS, is_tiered
from ottla.storage.upkeep.log_checkpoints import LogCheckpoints
from tests.support.background import ManualBackground
from tests.support.batches import a_batch
from tests.support.logs import LOG_DIR, T0, a_topic_config, append, read_all
from tests.support.tiered_replicas import BROKER, TieredReplica

SIZE = len(a_batch())
HOUR_MS = 3_600_000


def copied(records: int = 5, *, of: int | None = None, **config: str | int) -> TieredReplica:
    """Segments of a record each, an hour apart. All but the last are in the store, or the first `of`."""
    replica = TieredReplica(**config)
    replica.lead()
    for number in range(records):
        replica.produce(1)
        if number < records - 1:
            replica.clock.move(HOUR_MS)

    async def copy() -> None:
        if of is None:
            await replica.copy_all()
        for _ in range(of or 0):
            assert replica.copier is not None
            await replica.copier.copy_next()

    asyncio.run(copy())
    return replica


def bases(log: PartitionLog) -> list[int]:
    return log.segments.bases


def check(replica: TieredReplica) -> int:
    return delete_old_segments(replica.log, replica.clock.now_ms())


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"local_retention_ms": 4 * HOUR_MS}, [0, 1, 2, 3, 4]),
        ({"local_retention_ms": 2 * HOUR_MS}, [2, 3, 4]),
        ({"local_retention_ms": 1}, [4]),
        ({"local_retention_bytes": 3 * SIZE}, [2, 3, 4]),
        ({"local_retention_bytes": 1}, [4]),
    ],
)
def test_local_retention_removes_what_the_store_has_and_keeps_the_log_start(config: dict[str, int], left: list[int]) -> None:
    log = copied(**config).log
    replica = copied(**config)
    log = replica.log
    check(replica)
    assert bases(log) == left
    assert (log.log_start_offset, log.local_log_start_offset) == (0, left[0])
    assert log.leader_epochs.entries == [(0, 0)]


@pytest.mark.parametrize("config", [{"local_retention_ms": 1}, {"local_retention_bytes": 1}])
def test_local_retention_stops_at_the_first_segment_that_is_not_in_the_store(config: dict[str, int]) -> None:
    replica = copied(of=2, **config)
    check(replica)
    assert bases(replica.log) == [2, 3, 4]
    assert replica.log.log_start_offset == 0


def test_nothing_is_removed_while_the_metadata_are_not_read() -> None:
    replica = copied(local_retention_ms=1)
    replica.metadata.ready = False
    check(replica)
    assert bases(replica.log) == [0, 1, 2, 3, 4]


def test_a_segment_whose_copy_is_not_of_this_lineage_stays() -> None:
    replica = copied(local_retention_ms=1)
    replica.log.leader_epochs.assign(3, 1)  # the records from offset 1 on are those of another leader
    check(replica)
    assert bases(replica.log) == [1, 2, 3, 4]


@pytest.mark.parametrize(("config", "left"), [({"retention_ms": 2 * HOUR_MS}, [2, 3, 4]), ({"retention_bytes": 3 * SIZE}, [2, 3, 4])])
def test_retention_removes_segments_although_the_store_never_got_them(config: dict[str, int], left: list[int]) -> None:
    replica = TieredReplica(**config)
    for _ in range(5):
        replica.produce(1)
        replica.clock.move(HOUR_MS)
    replica.clock.move(-HOUR_MS)
    check(replica)
    log = replica.log
    assert bases(log) == left
    assert log.log_start_offset == log.local_log_start_offset == 2


def test_an_active_segment_that_is_due_is_rolled_so_that_it_is_copied() -> None:
    replica = copied(local_retention_ms=HOUR_MS)
    replica.clock.move(2 * HOUR_MS)
    assert check(replica) == 4
    assert bases(replica.log) == [4, 5]
    asyncio.run(replica.copy_all())
    assert check(replica) == 1
    assert check(replica) == 0
    assert bases(replica.log) == [5]
    assert replica.log.log_start_offset == 0
    assert replica.ranges()[-1] == (4, 4)


def test_an_old_record_does_not_take_newer_ones_in_the_store_with_it() -> None:
    replica = copied(local_retention_ms=HOUR_MS, retention_ms=20 * HOUR_MS)
    log = replica.log
    replica.clock.move(2 * HOUR_MS)
    check(replica)
    asyncio.run(replica.copy_all())
    check(replica)
    assert bases(log) == [5]
    replica.produce(2, timestamp=replica.clock.now_ms() - 100 * HOUR_MS)
    for _ in range(3):
        check(replica)  # while the store does not answer
    assert bases(log) == [5, 6, 7]
    assert log.log_start_offset == 0

    async def copy_and_expire() -> None:
        await replica.copy_all()
        await replica.expiry.run()

    asyncio.run(copy_and_expire())
    assert check(replica) == 2
    assert log.log_start_offset == 0
    assert replica.ranges() == [(at, at) for at in range(7)]


def test_an_active_segment_beyond_retention_may_be_copied_before_it_is_removed() -> None:
    replica = copied(local_retention_ms=HOUR_MS, retention_ms=2 * HOUR_MS)
    replica.clock.move(100 * HOUR_MS)  # or its clock is wrong
    while delete_old_segments(replica.log, replica.clock.now_ms(), at_most=2) == 2:
        pass
    assert bases(replica.log) == [4, 5]
    assert replica.log.log_start_offset == 0


def test_segments_beyond_retention_go_without_a_copy_once_the_copies_before_them_are_known_to_be_as_old() -> None:
    replica = copied(local_retention_ms=HOUR_MS, retention_ms=20 * HOUR_MS)
    log = replica.log
    assert log.tier is not None
    check(replica)
    replica.clock.move(10 * HOUR_MS)
    replica.produce(1)
    replica.clock.move(15 * HOUR_MS)
    replica.metadata.ready = False
    check(replica)
    assert (log.log_start_offset, bases(log)) == (0, [3, 4, 5, 6])
    replica.metadata.ready, log.tier.is_known = True, False
    check(replica)
    assert (log.log_start_offset, bases(log)) == (0, [4, 5, 6])
    log.tier.is_known = True
    check(replica)
    assert (log.log_start_offset, bases(log)) == (5, [5, 6])


def test_reads_tell_remote_records_from_missing_ones() -> None:
    replica = copied(local_retention_ms=2 * HOUR_MS)
    log = replica.log
    log.increment_log_start_offset(1, "test")
    check(replica)
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 1000, 5, True)
    with pytest.raises(OffsetMovedToTieredStorage) as moved:
        log.read(1, 1000, 5, True)
    assert moved.value.local_start == 2
    assert len(read_all(log, 2)) == 3 * SIZE


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_takes_the_log_start_from_the_checkpoint(clean: bool) -> None:
    replica = copied(local_retention_ms=2 * HOUR_MS)
    replica.log.increment_log_start_offset(1, "test")
    check(replica)
    assert written_start(replica.log) == 1
    if clean:
        replica.log.flush()
        replica.log.close()
    again = replica.open(clean=clean, log_start_offset=1)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (1, 2, 5)
    assert again.leader_epochs.entries == [(0, 1)]
    assert again.tier is not None
    assert again.tier.copied == NOTHING_COPIED


def written_start(log: PartitionLog) -> int | None:
    """The log start offset in the checkpoint that is written now."""
    clock = log.context.clock
    background = ManualBackground(clock)  # type: ignore[arg-type]  # it is a ManualClock
    checkpoints = LogCheckpoints(log.context.filesystem, background, lambda: [log], lambda failure: None)
    checkpoints.log_start_offsets([LOG_DIR])
    background.advance()
    return OffsetCheckpoint(LOG_DIR, LOG_START_OFFSET_CHECKPOINT, log.context.filesystem).read().get(T0)


def test_the_checkpoint_always_has_a_log_with_remote_storage() -> None:
    assert written_start(copied().log) == 0
    assert written_start(copied(remote_storage_enable="false", of=0).log) is None


def test_deleted_records_move_both_starts() -> None:
    replica = copied(local_retention_ms=2 * HOUR_MS)
    check(replica)
    replica.log.increment_log_start_offset(3, "records were deleted by a client")
    assert replica.log.local_log_start_offset == 3
    check(replica)
    assert bases(replica.log) == [3, 4]


def test_a_truncation_below_the_local_start_keeps_the_remote_part() -> None:
    replica = copied(local_retention_ms=1)
    log = replica.log
    check(replica)
    assert log.tier is not None
    assert log.tier.copied == (3, 0)
    log.truncations.truncate_to(2)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 2, 2)
    assert log.tier.copied == (1, 0)
    assert append(log, epoch=1).first_offset == 2


def test_a_truncation_below_the_local_start_keeps_the_epochs_of_the_remote_part() -> None:
    replica = copied(2, local_retention_ms=1)
    for epoch in (1, 2):
        replica.lead(epoch)
        replica.produce(1)
    asyncio.run(replica.copy_all())
    log = replica.log
    replica.clock.move(HOUR_MS)
    check(replica)
    assert log.local_log_start_offset == 3
    log.truncations.truncate_to(2)
    assert log.leader_epochs.entries == [(0, 0)]
    assert log.latest_epoch == 0
    assert replica.open(clean=False, log_start_offset=0).leader_epochs.entries == [(0, 0)]


def test_a_log_that_begins_behind_what_is_in_the_store_has_its_epochs_at_once() -> None:
    replica = copied(2)
    log = replica.log
    epochs = [(3, 40), (4, 70)]
    log.truncations.truncate_fully_in_thread(100, lambda error: None, RemoteRecords(40, epochs))
    assert log.leader_epochs.entries == epochs  # a crash may strike before the thread has ended


def test_a_log_may_begin_behind_what_is_in_the_store() -> None:
    log = TieredReplica().log
    log.truncations.truncate_fully_and_start_at(100, 40)
    assert (log.log_start_offset, log.local_log_start_offset, log.high_watermark) == (40, 100, 100)
    assert append(log).first_offset == 100
    with pytest.raises(OffsetMovedToTieredStorage):
        log.read(40, 1000, 101, True)


def test_a_log_gets_its_tier_when_the_topic_does_and_keeps_it() -> None:
    replica = TieredReplica(remote_storage_enable="false")
    log = replica.log
    assert log.tier is None
    for enabled in ("true", "false"):
        log.update_config(a_topic_config({**replica.topic_config, "remote.storage.enable": enabled}, BROKER))
        assert log.tier is not None


@pytest.mark.parametrize("topic", sorted(BROKERS_TOPICS))
def test_internal_topics_are_never_tiered(topic: str) -> None:
    config = a_topic_config({"remote.storage.enable": "true"}, BROKER)
    assert is_tiered("orders", config)
    assert not is_tiered(topic, config)
