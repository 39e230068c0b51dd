"""Runs a group coordinator over real parts in memory: replica manager, partitions, logs. The test advances time by hand.

    async with a_bench() as bench:
        await bench.lead(0)

Broker 0 is under test; broker 1 is a follower where a test wants one, and fetches on demand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ottla.coordination.groups.classic_group import Protocols
from ottla.coordination.groups.commits import Commit, TopicCommit, Transaction
from ottla.coordination.groups.consumer.effects import Beat, BeatResult
from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.groups.effects import JoinResult, LeaveResult, SyncResult
from ottla.coordination.groups.group import Committer
from ottla.coordination.groups.membership import Leaving
from ottla.coordination.groups.offset_records import OffsetAndMetadata, offset_value
from ottla.coordination.groups.rebalance import Join
from ottla.coordination.groups.records import read_key
from ottla.coordination.groups.share.group import Initialized
from ottla.coordination.groups.share.offsets import Place, Results
from ottla.coordination.groups.syncing import Sync
from ottla.coordination.supported_operation import SupportedOperation
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.offset_fetch import OffsetFetchResponsePartitions
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from ottla.protocol.records.reader import Record, iter_records
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimingWheel
from ottla.storage.disk.clock import elapsed_ms
from ottla.storage.log.origins import COORDINATOR
from ottla.storage.validation.run import BatchRun
from tests.support.consumer_groups import topic_id
from tests.support.groups import RANGE
from tests.support.log_manager import Disks
from tests.support.logs import read_all
from tests.support.pauses import at_once, no_pause_waits

Answer = TypeVar("Answer")

OFFSETS_TOPIC = "__consumer_offsets"
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


class _Never:
    def cancel(self) -> None:
        """The wheel is advanced by hand."""


def a_commit(offsets: Mapping[TopicPartition, OffsetAndMetadata], fits: Callable[[bytes], bool] = lambda metadata: True) -> Commit:
    """As the handler of OffsetCommit makes it of a request."""
    topics: dict[str, TopicCommit] = {}
    for (topic, index), value in offsets.items():
        of_topic = topics.setdefault(topic, TopicCommit(topic))
        of_topic.values[index] = offset_value(value) if fits(value.metadata.encode()) else None
    return Commit(topics.values())


class Verifier:
    """Confirms every transaction, at once or when the test says so."""

    def __init__(self) -> None:
        self.is_held = False
        self.asked: list[tuple[str, int, int, Sequence[TopicPartition], bool]] = []
        self._waiting: list[Callable[[dict[TopicPartition, ErrorCode]], None]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Callable[[dict[TopicPartition, ErrorCode]], None],
        operation: SupportedOperation,
    ) -> None:
        """As a TransactionVerifier."""
        self.asked.append((transactional_id, producer_id, producer_epoch, partitions, operation))
        self._waiting.append(then)
        if not self.is_held:
            self.answer()

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest question; the code is that of the first partition of `__consumer_offsets`."""
        self._waiting.pop(0)({TopicPartition(OFFSETS_TOPIC, 0): code} if code else {})


class NoShareState:
    """The coordinator of share partitions cannot be reached: nothing is initialized."""

    def initialize(self, group_id: str, partitions: Initialized, epoch: int, grown: frozenset[bytes], then: Callable[[bool], None]) -> None:
        then(False)

    def move(self, group_id: str, offsets: Mapping[Place, int], epoch: int, then: Callable[[Results], None]) -> None:
        then(dict.fromkeys(offsets, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def forget(self, group_id: str, places: Iterable[Place], then: Callable[[Results], None]) -> None:
        then(dict.fromkeys(places, ErrorCode.COORDINATOR_NOT_AVAILABLE))


class GroupBench:
    """See the module."""

    def __init__(self, disks: Disks, workers: ThreadPoolExecutor, **config: str | int) -> None:
        self.disks = disks
        self.workers = workers
        self.clock = disks.clock
        disks.topics[OFFSETS_TOPIC] = {"cleanup.policy": "compact", "compression.type": "producer"}
        self.manager = disks.start(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1, **config)
        self.wheel = TimingWheel(self.clock.monotonic, lambda delay, callback: _Never())
        self.purgatory = Purgatory("Produce", self.wheel)
        self.replica_manager = ReplicaManager(0, self.manager, MetadataCache(), self.clock)
        self.uuids = 0
        self.verifier = Verifier()
        self.level = 1
        self.groups = GroupCoordinator(
            disks.broker,
            self.clock,
            self.wheel,
            self.replica_manager,
            self.purgatory,
            workers,
            self.verifier,
            NoShareState(),
            new_uuid=self._new_uuid,
            level=lambda: self.level,
        )
        self.replica_manager.leadership_listeners.append(self.groups.on_leadership_change)
        self.replica_manager.deletion_listeners.append(self.groups.on_partitions_deleted)
        self.groups.start()
        self.announce({})

    def _new_uuid(self) -> int:
        self.uuids += 1
        return self.uuids

    # -- the controller ------------------------------------------------------------------------------------------------------

    def announce(self, topics: dict[str, int], leader: int = 0) -> None:
        """UpdateMetadata: these topics, with so many partitions."""
        for name, count in topics.items() or (("", 0),):
            self.move(dict.fromkeys(range(count), leader), topic=name)

    def move(self, leaders: Mapping[int, int], topic: str = "t") -> None:
        """UpdateMetadata: the partitions of the topic have these leaders."""
        brokers = [
            UpdateMetadataBroker(
                id=broker_id,
                endpoints=[UpdateMetadataEndpoint(port=9092, host=f"broker-{broker_id}", listener="PLAINTEXT", security_protocol=0)],
            )
            for broker_id in (0, 1)
        ]
        states = [
            UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=(0,), replicas=(0,)) for index, leader in leaders.items()
        ]
        topics = [UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id(topic), partition_states=states)] if topic else []
        request = UpdateMetadataRequest(controller_epoch=1, topic_states=topics, live_brokers=brokers)
        at_once(self.replica_manager.on_update_metadata(request))

    def delete_topic(self, name: str, partitions: int) -> None:
        """UpdateMetadata says that the topic is being deleted."""
        self.announce({name: partitions}, leader=-2)

    async def lead(
        self, index: int = 0, *, epoch: int = 0, isr: Sequence[int] = (0,), leader: int = 0, topic: str = OFFSETS_TOPIC,
        replicas: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """LeaderAndIsr: broker `leader` leads a partition of `__consumer_offsets`."""
        state = LeaderAndIsrPartitionState(
            partition_index=index, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=tuple(isr), partition_epoch=epoch,
            replicas=tuple(replicas) or ((0, 1) if len(isr) > 1 or leader else (0,)), is_new=epoch == 0,
        )  # fmt: skip
        topics = [LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])]
        response = await self.replica_manager.on_leader_and_isr(LeaderAndIsrRequest(controller_epoch=1, topic_states=topics))
        assert [each.error_code for each in response.partition_errors] == [0]

    async def stop_replica(self, index: int = 0) -> None:
        """StopReplica, with deletion."""
        states = [StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)]
        topics = [StopReplicaTopicState(topic_name=OFFSETS_TOPIC, partition_states=states)]
        with self.disks.background.hurried():
            await self.replica_manager.on_stop_replica(StopReplicaRequest(controller_epoch=1, topic_states=topics))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let tasks run until it is so."""
        for _ in range(2_000):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it never came")

    async def until_loaded(self) -> None:
        """Let the coordinator load what it leads."""
        await self.until(lambda: not self.groups.groups.is_loading)

    # -- time, and the follower ------------------------------------------------------------------------------------------------

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass and timers fire, to the second."""
        while milliseconds > 0:
            step = min(milliseconds, 1_000)
            self.clock.move(step)
            self.wheel.advance()
            milliseconds -= step

    def follower_fetches(self, index: int = 0) -> None:
        """Broker 1 has everything in the partition."""
        partition = self.partition(index)
        partition.on_follower_fetch(1, partition.log.log_end_offset, 0, elapsed_ms(self.clock))

    # -- the log -----------------------------------------------------------------------------------------------------------------

    def partition(self, index: int = 0) -> Partition:
        """A partition of `__consumer_offsets`."""
        return self.replica_manager.partition_or_raise(OFFSETS_TOPIC, index)

    def records(self, index: int = 0) -> list[Record]:
        """Everything in a partition of `__consumer_offsets`."""
        data = read_all(self.partition(index).log)
        return [record for position, header in iter_batches(data) for record in iter_records(data, position, header)]

    # -- requests ----------------------------------------------------------------------------------------------------------------

    def join(
        self,
        group: str = "g",
        member_id: str = "",
        *,
        session_ms: int = 10_000,
        protocols: Protocols = RANGE,
        instance_id: str | None = None,
    ) -> list[JoinResult]:
        """A JoinGroup; the answer is put into the list."""
        results: list[JoinResult] = []
        join = Join(results.append, member_id, instance_id, "client", "/127.0.0.1", 60_000, session_ms, "consumer", protocols)
        self.groups.join(group, join)
        return results

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes], group: str = "g") -> list[SyncResult]:
        """A SyncGroup; the answer is put into the list."""
        results: list[SyncResult] = []
        self.groups.sync(group, Sync(results.append, member_id, None, generation, None, None, assignments))
        return results

    def leave(self, *leaving: Leaving, group: str = "g") -> list[LeaveResult]:
        """A LeaveGroup; the answer is put into the list."""
        results: list[LeaveResult] = []
        self.groups.leave(group, leaving, results.append)
        return results

    def beat(self, member_id: str, epoch: int = 0, group: str = "g", **fields: Any) -> list[BeatResult]:
        """A ConsumerGroupHeartbeat; the answer is put into the list, often by a later turn of the loop."""
        results: list[BeatResult] = []
        if not epoch:
            fields = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "held": {}, **fields}
        beat = Beat(results.append, member_id, epoch, client_id="client", client_host="/127.0.0.1", **fields)
        self.groups.consumer.heartbeat(group, beat, requires_member_id=True)
        return results

    async def answered(self, answers: Sequence[Answer]) -> Answer:
        """The answer to a request, when it is there."""
        await self.until(lambda: bool(answers))
        return answers[0]

    def a_member(self, group: str = "g") -> str:
        """The only member of a stable group."""
        joined = self.join(group)
        self.pass_time(10)
        member_id = joined[0].member_id
        assert self.sync(member_id, 1, {member_id: b"all"}, group)[0].error == ErrorCode.NONE
        return member_id

    def commit(
        self, offset: int = 7, *, group: str = "g", member_id: str = "", generation: int = -1, partition: TopicPartition = T0,
        metadata: str = "", expires_ms: int = -1,
    ) -> list[ErrorCode]:  # fmt: skip
        """An OffsetCommit of one partition; the answer is put into the list."""
        value = OffsetAndMetadata(offset, 3, metadata, self.clock.now_ms(), expires_ms)
        return self.commit_all({partition: value}, group=group, member_id=member_id, generation=generation)

    def commit_all(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, group: str = "g", member_id: str = "", generation: int = -1,
        instance_id: str | None = None, transaction: Transaction | None = None, version: int = 9,
    ) -> list[ErrorCode]:  # fmt: skip
        """An OffsetCommit, or a TxnOffsetCommit of a transaction; the answer for each partition is put into the list."""
        codes: list[ErrorCode] = []
        commit = a_commit(offsets, self.groups.offsets.fits)

        def reply(code: ErrorCode, too_large: ErrorCode) -> None:
            codes.extend(too_large if value is None else code for topic in commit.topics for value in topic.values.values())

        committer = Committer(member_id, instance_id, generation, transaction is not None, version)
        self.groups.offsets.commit(group, committer, transaction, commit, reply)
        return codes

    def commit_in_transaction(
        self, offset: int = 7, *, producer_id: int = 1000, epoch: int = 0, group: str = "g", partition: TopicPartition = T0,
        member_id: str = "", generation: int = -1, instance_id: str | None = None, version: int = 5,
    ) -> list[ErrorCode]:  # fmt: skip
        """A TxnOffsetCommit of one partition; the answer is put into the list."""
        value = OffsetAndMetadata(offset, 3, "", self.clock.now_ms())
        transaction = Transaction("tx", producer_id, epoch, SupportedOperation.GENERIC_ERROR)
        return self.commit_all(
            {partition: value}, group=group, member_id=member_id, generation=generation, instance_id=instance_id, transaction=transaction,
            version=version,
        )  # fmt: skip

    def write_marker(self, producer_id: int = 1000, *, epoch: int = 0, is_commit: bool = True, index: int = 0) -> int:
        """Append a marker to a partition of `__consumer_offsets`, and return the offset behind it."""
        kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
        marker = build_end_transaction_marker(
            EndTransactionMarker(kind, 0), timestamp=self.clock.now_ms(), producer_id=producer_id, producer_epoch=epoch
        )
        run = BatchRun(memoryview(bytearray(marker)))
        run.read(0)
        self.partition(index).append(run, -1, self.clock.now_ms(), COORDINATOR)
        return run.last_offset + 1

    def end_transaction(self, producer_id: int = 1000, *, epoch: int = 0, is_commit: bool = True, index: int = 0) -> None:
        """WriteTxnMarkers: append a marker, and say so, as when all replicas have it."""
        self.write_marker(producer_id, epoch=epoch, is_commit=is_commit, index=index)
        self.groups.on_transaction_completed(producer_id, index, is_commit)

    def delete(self, group: str = "g") -> ErrorCode:
        """The answer of DeleteGroups for a group."""
        return at_once(self.groups.offsets.delete_group(group))

    def committed(self, group: str = "g", partition: TopicPartition = T0, *, require_stable: bool = False) -> int | ErrorCode:
        """The OffsetFetch result for one partition: an offset, or an error."""
        topic, index = partition
        error, found = self.groups.offsets.fetch(group, {topic: [index]}, require_stable=require_stable)
        (fetched,) = found.get(topic, [OffsetFetchResponsePartitions()])
        return error or ErrorCode.of(fetched.error_code) or fetched.committed_offset


@asynccontextmanager
async def a_bench(disks: Disks | None = None, **config: str | int) -> AsyncIterator[GroupBench]:
    """A started coordinator that leads nothing yet."""
    no_pause_waits()
    with ThreadPoolExecutor(1) as workers:
        bench = GroupBench(disks or Disks(), workers, **config)
        try:
            yield bench
        finally:
            await bench.groups.stop()
            bench.manager.shutdown()


def run(scenario: Callable[[GroupBench], Awaitable[None]], **config: str | int) -> None:
    """A scenario on a bench of its own."""

    async def main() -> None:
        async with a_bench(**config) as bench:
            await scenario(bench)
            await bench.until_loaded()
            consumers = [group for group in bench.groups.groups if isinstance(group, ConsumerGroup) and group.replaced is None]
            assert bench.groups.consumer.machine.members == sum(len(group.members) for group in consumers)

    asyncio.run(main())


def tombstones(bench: GroupBench) -> list[object]:
    """The keys of the tombstones in the first partition, in their order."""
    return [read_key(record.key or b"") for record in bench.records() if record.value is None]
