"""A topic that loses remote.storage.enable behind the brokers' backs: its remote records are still there, and stay."""

import asyncio

import pytest

from ottla.replication.remote.positions import CopiesOf, find_log_start, refresh
from ottla.storage.disk.checkpoint import LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint
from ottla.storage.errors import OffsetMovedToTieredStorage
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.retention import delete_old_segments
from ottla.storage.upkeep.log_checkpoints import LogCheckpoints
from tests.support.background import ManualBackground
from tests.support.batches import a_batch
from tests.support.logs import LOG_DIR, T0, a_topic_config
from tests.support.tiered_replicas import BROKER, TIERED, TieredReplica

SIZE = len(a_batch())
HOUR_MS = 3_600_000
SAID = "nothing is copied or expires there"


async def begun(*, copies: int = 3, local_retention_ms: int = 2 * HOUR_MS) -> TieredReplica:
    """Five segments of a record each, an hour apart; the first `copies` are in the store, two of them only there."""
    replica = TieredReplica(local_retention_ms=local_retention_ms)
    replica.lead()
    for number in range(5):
        replica.produce(1)
        replica.clock.move(HOUR_MS if number < 4 else 0)
    assert replica.copier is not None
    for _ in range(copies):
        await replica.copier.copy_next()
    delete_old_segments(replica.log, replica.clock.now_ms())
    return replica


def restarted(
    replica: TieredReplica, *, clean: bool = True, checkpoint: int | None = 0, config: dict[str, str] | None = None
) -> PartitionLog:
    """The log after a start with this configuration of the topic, and without the one that it had."""
    if clean:
        replica.log.flush()
        replica.log.close()
    replica.topic_config = {
        **{name: value for name, value in replica.topic_config.items() if name.startswith("segment.")},
        **(config or {}),
    }
    replica.log = replica.partition.log = replica.open(clean=clean, log_start_offset=checkpoint)
    replica.log.update_high_watermark(replica.log.log_end_offset)
    replica.lead(1)
    return replica.log


def written_start(log: PartitionLog) -> int | None:
    """The log start offset in the checkpoint that is written now."""
    background = ManualBackground(log.context.clock)  # type: ignore[arg-type]  # it is a ManualClock
    LogCheckpoints(log.context.filesystem, background, lambda: [log], lambda failure: None).log_start_offsets([LOG_DIR])
    background.advance()
    return OffsetCheckpoint(LOG_DIR, LOG_START_OFFSET_CHECKPOINT, log.context.filesystem).read().get(T0)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [{}, {"remote.storage.enable": "false"}, {"remote.storage.enable": "true", "cleanup.policy": "compact"}])
def test_the_log_start_stays_and_records_are_read_from_the_store(
    clean: bool, config: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        replica = await begun()
        log = restarted(replica, clean=clean, config=config)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 2, 5)
        assert log.leader_epochs.entries[0] == (0, 0)
        with pytest.raises(OffsetMovedToTieredStorage):
            log.read(0, 1000, 5, True)
        copies = CopiesOf(replica.metadata, TIERED)
        refresh(log, copies)
        find_log_start(log, copies)
        assert log.log_start_offset == 0
        assert log.tier is not None
        assert log.tier.find(0, 1) is not None
        assert written_start(log) == 0

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records if SAID in record.getMessage()] == [
        "topic-0: its topic has no remote.storage.enable any more: what is in the remote store from offset 0 on is still read, and "
        "nothing is copied or expires there; enable it again"
    ]


def test_nothing_more_is_copied_and_nothing_expires_until_it_is_enabled_again() -> None:
    async def scenario() -> None:
        replica = await begun()
        log = restarted(replica, config={"retention.ms": str(HOUR_MS), "retention.bytes": "1"})
        replica.clock.move(1000 * HOUR_MS)
        await replica.copy_all()
        await replica.expiry.run()
        assert replica.ranges() == [(0, 0), (1, 1), (2, 2)]
        assert log.log_start_offset == 0
        assert delete_old_segments(log, replica.clock.now_ms()) == 1  # the store has it
        assert log.segments.bases == [3, 4]
        assert log.log_start_offset == 0

        log.update_config(a_topic_config({"remote.storage.enable": "true", "retention.ms": "-1", "segment.index.bytes": "1200"}, BROKER))
        await replica.copy_all()
        assert replica.ranges() == [(0, 0), (1, 1), (2, 2), (3, 3)]

    asyncio.run(scenario())


def test_local_records_do_not_expire_before_the_metadata_are_read() -> None:
    async def scenario() -> None:
        replica = await begun(local_retention_ms=-1)  # all is here, and a part is also in the store
        log = restarted(replica, config={"retention.ms": str(HOUR_MS)})
        replica.clock.move(1000 * HOUR_MS)
        assert delete_old_segments(log, replica.clock.now_ms()) == 0
        refresh(log, CopiesOf(replica.metadata, TIERED))
        assert delete_old_segments(log, replica.clock.now_ms()) == 3
        assert log.log_start_offset == 0

    asyncio.run(scenario())


def test_deleted_records_end_the_remote_part() -> None:
    async def scenario() -> None:
        replica = await begun()
        log = restarted(replica, config={"retention.ms": str(HOUR_MS)})
        refresh(log, CopiesOf(replica.metadata, TIERED))
        log.increment_log_start_offset(3, "records were deleted by a client")
        replica.clock.move(1000 * HOUR_MS)
        delete_old_segments(log, replica.clock.now_ms())
        assert log.log_start_offset == log.local_log_start_offset == 5

    asyncio.run(scenario())


def test_an_old_entry_of_a_log_that_never_was_tiered_does_not_keep_its_records() -> None:
    async def scenario() -> None:
        replica = await begun(copies=0, local_retention_ms=-1)
        log = replica.log
        log.delete_old_segments(lambda segment, _: segment.base_offset < 2, "test")
        log = restarted(replica, clean=False, checkpoint=1, config={"retention.ms": str(HOUR_MS)})
        assert log.log_start_offset == 1
        copies = CopiesOf(replica.metadata, TIERED)
        refresh(log, copies)
        find_log_start(log, copies)
        assert log.log_start_offset == log.local_log_start_offset == 2
        replica.clock.move(1000 * HOUR_MS)
        delete_old_segments(log, replica.clock.now_ms())
        assert log.log_start_offset == 5

    asyncio.run(scenario())


@pytest.mark.parametrize(("checkpoint", "broker"), [(None, BROKER), (3, BROKER), (0, {})])
def test_any_other_log_begins_with_its_first_record(checkpoint: int | None, broker: dict[str, str]) -> None:
    async def scenario() -> None:
        replica = await begun()
        replica.broker = broker
        log = restarted(replica, checkpoint=checkpoint)
        assert log.tier is None
        assert log.log_start_offset == max(checkpoint or 0, 2)

    asyncio.run(scenario())


def test_a_change_while_the_broker_runs_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        log = (await begun()).log
        for enabled in ("false", "false", "true", "true"):
            log.update_config(a_topic_config({"remote.storage.enable": enabled}, BROKER))

    asyncio.run(scenario())
    assert sum(SAID in record.getMessage() for record in caplog.records) == 1
