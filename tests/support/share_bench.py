"""Runs a share coordinator over real parts in memory: replica manager, partitions, logs. The test advances time by hand.

async with a_share_bench() as bench:
    await bench.coordinate()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from ottla.coordination.internal_topics import SHARE_STATE_TOPIC
from ottla.coordination.shares.record_states import StateBatch
from ottla.coordination.shares.state.coordinator import ShareCoordinator, StateResult, StateWrite
from ottla.coordination.shares.state.stored_state import SharePartitionKey
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.reader import Record, iter_records
from ottla.replication.leader.partition import Partition
from tests.support.group_bench import GroupBench
from tests.support.log_manager import Disks
from tests.support.logs import read_all
from tests.support.pauses import at_once

TOPIC_ID = bytes.fromhex("1974cab2f7644da29a3fba8dc7d60011")
"""The id of a topic `t` with three partitions."""
STATE_TOPIC_ID = bytes.fromhex("1974cab2f7644da29a3fba8dc7d60012")

KEY = SharePartitionKey("g", TOPIC_ID, 0)


class ShareBench(GroupBench):
    """See the module."""

    def __init__(self, disks: Disks, workers: ThreadPoolExecutor, **config: str | int) -> None:
        disks.topics[SHARE_STATE_TOPIC] = {"cleanup.policy": "delete", "retention.ms": "-1"}
        super().__init__(disks, workers, share_coordinator_state_topic_num_partitions=1, **config)
        self.shares = ShareCoordinator(disks.broker, self.clock, self.wheel, self.replica_manager, self.purgatory, workers)
        self.replica_manager.leadership_listeners.append(self.shares.on_leadership_change)
        self.shares.start()
        self.announce_id("t", TOPIC_ID, 3)

    def announce_id(self, name: str, topic_id: bytes, count: int, epoch: int = 0) -> None:
        """UpdateMetadata: a topic of this id with so many partitions, of this leader epoch."""
        states = [
            UpdateMetadataPartitionState(partition_index=index, leader=0, leader_epoch=epoch, isr=(0,), replicas=(0,))
            for index in range(count)
        ]
        brokers = [
            UpdateMetadataBroker(
                id=broker_id,
                endpoints=[UpdateMetadataEndpoint(port=9092, host=f"broker-{broker_id}", listener="PLAINTEXT", security_protocol=0)],
            )
            for broker_id in (0, 1)
        ]
        topics = [UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)]
        request = UpdateMetadataRequest(controller_epoch=1, topic_states=topics, live_brokers=brokers)
        at_once(self.replica_manager.on_update_metadata(request))

    async def coordinate(self, *, epoch: int = 0, isr: tuple[int, ...] = (0,), leader: int = 0) -> None:
        """Broker `leader` leads the partition of `__share_group_state`."""
        state = LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=epoch,
            replicas=(0, 1) if len(isr) > 1 or leader else (0,), is_new=epoch == 0,
        )  # fmt: skip
        topics = [LeaderAndIsrTopicState(topic_name=SHARE_STATE_TOPIC, partition_states=[state])]
        response = await self.replica_manager.on_leader_and_isr(LeaderAndIsrRequest(controller_epoch=1, topic_states=topics))
        assert [each.error_code for each in response.partition_errors] == [0]
        await self.until(lambda: not self.shares.states.is_loading)

    @property
    def state_partition(self) -> Partition:
        """The only partition of `__share_group_state`."""
        return self.replica_manager.partition_or_raise(SHARE_STATE_TOPIC, 0)

    def state_records(self) -> list[Record]:
        """Everything in it."""
        data = read_all(self.state_partition.log)
        return [record for position, header in iter_batches(data) for record in iter_records(data, position, header)]

    # -- requests, whose results are put into a list ---------------------------------------------------------------------------

    def initialize(self, state_epoch: int = 1, start_offset: int = 0, *, key: SharePartitionKey = KEY) -> list[StateResult]:
        results: list[StateResult] = []
        self.shares.initialize(key, state_epoch, start_offset, results.append)
        return results

    def read(self, leader_epoch: int = 0, *, key: SharePartitionKey = KEY) -> list[StateResult]:
        results: list[StateResult] = []
        self.shares.read(key, leader_epoch, results.append)
        return results

    def write(
        self, *batches: tuple[int, int, int, int], start: int = 0, complete: int = 0, state_epoch: int = 1, leader_epoch: int = 0,
        key: SharePartitionKey = KEY,
    ) -> list[StateResult]:  # fmt: skip
        results: list[StateResult] = []
        write = StateWrite(state_epoch, leader_epoch, start, complete, [StateBatch(*batch) for batch in batches])
        self.shares.write(key, write, results.append)
        return results

    def delete(self, *, key: SharePartitionKey = KEY) -> list[StateResult]:
        results: list[StateResult] = []
        self.shares.delete(key, results.append)
        return results

    def summarize(self, *, key: SharePartitionKey = KEY) -> list[StateResult]:
        results: list[StateResult] = []
        self.shares.summarize(key, results.append)
        return results


@asynccontextmanager
async def a_share_bench(disks: Disks | None = None, **config: str | int) -> AsyncIterator[ShareBench]:
    """A started coordinator that leads nothing yet."""
    with ThreadPoolExecutor(1) as workers:
        bench = ShareBench(disks or Disks(), workers, **config)
        try:
            yield bench
        finally:
            await bench.shares.stop()
            await bench.groups.stop()
            bench.manager.shutdown()


def run_shares(scenario: Callable[[ShareBench], Awaitable[None]], **config: str | int) -> None:
    """A scenario on a bench of its own."""

    async def main() -> None:
        async with a_share_bench(**config) as bench:
            await scenario(bench)

    asyncio.run(main())
