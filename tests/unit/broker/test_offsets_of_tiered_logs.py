"""ListOffsets of a log that has records in the remote store: its two starts, and the last offset that was copied."""

import pytest

from ottla.broker.handlers.table import SERVED
from ottla.broker.request.listed_apis import ListedApis
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.lineage import OffsetAndEpoch
from ottla.storage.remote.tier import Tier
from tests.support.batches import a_batch
from tests.support.handler_bench import HandlerBench, on_a_loop
from tests.support.replicas import TOPIC, state

EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -2, -4, -5, -6


def a_bench() -> tuple[HandlerBench, PartitionLog]:
    """A leader of five segments of a record each; from offset 2 on in leader epoch 3."""
    bench = HandlerBench(**{"segment.bytes": str(len(a_batch()))})
    bench.services.listed = ListedApis(SERVED, bench.features.level, is_own_cluster=True)  # version 11 is newer than 3.9
    for epoch, records in ((0, 2), (3, 3)):
        bench.replicas.say(state(isr=[0], replicas=[0], epoch=epoch, partition_epoch=epoch))
        for _ in range(records):
            bench.replicas.append()
    return bench, bench.replicas.partition.log


def tier(log: PartitionLog, copied: OffsetAndEpoch, local_start: int) -> None:
    """So much was copied, and the segments before were removed here."""
    log.tier = Tier()
    log.tier.copied = copied
    log.delete_old_segments(
        lambda segment, following: following is not None and following.base_offset <= local_start, "test", keeps_log_start=True
    )


def listed(bench: HandlerBench, timestamp: int, version: int = 11) -> tuple[int, int, int]:
    """Error code, offset and leader epoch."""
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])])
    (topic,) = bench.ask(request, ApiKey.LIST_OFFSETS, version).response.topics
    (found,) = topic.partitions
    return found.error_code, found.offset, found.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "offset", "epoch"), [(EARLIEST, 0, 0), (EARLIEST_LOCAL, 3, 3), (LATEST_TIERED, 2, 3), (PENDING, 3, 3)]
)
def test_a_tiered_log_has_two_starts_and_a_last_copied_offset(timestamp: int, offset: int, epoch: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench, log = a_bench()
        tier(log, OffsetAndEpoch(2, 3), 3)
        assert listed(bench, timestamp) == (0, offset, epoch)

    scenario()


@pytest.mark.parametrize(
    ("timestamp", "offset", "epoch"), [(EARLIEST, 0, 0), (EARLIEST_LOCAL, 0, 0), (LATEST_TIERED, -1, -1), (PENDING, 0, 0)]
)
def test_a_tiered_log_of_which_nothing_is_copied_begins_here(timestamp: int, offset: int, epoch: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench, log = a_bench()
        log.tier = Tier()
        assert listed(bench, timestamp) == (0, offset, epoch)

    scenario()


@pytest.mark.parametrize(("timestamp", "offset", "epoch"), [(EARLIEST_LOCAL, 0, 0), (LATEST_TIERED, -1, -1), (PENDING, -1, -1)])
def test_a_log_without_remote_storage_has_one_start(timestamp: int, offset: int, epoch: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench, _ = a_bench()
        assert listed(bench, timestamp) == (0, offset, epoch)

    scenario()


@pytest.mark.parametrize(("timestamp", "version"), [(EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING, 10)])
def test_older_versions_do_not_know_these_offsets(timestamp: int, version: int) -> None:
    @on_a_loop
    async def scenario() -> None:
        bench, log = a_bench()
        tier(log, OffsetAndEpoch(2, 3), 3)
        assert listed(bench, timestamp, version) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)

    scenario()
