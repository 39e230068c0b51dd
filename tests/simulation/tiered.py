"""A cluster whose closed segments go to a store: what must be true of them, and stories in which brokers and store fail.

The rules are the "never" of tiered storage; docs/long-tests.md lists them.
"""

from __future__ import annotations

import asyncio
from typing import cast

from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.peer import PeerUnavailable
from ottla.storage.remote.entries import SegmentState, TopicIdPartition
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from ottla.storage.remote.ports import MetadataNotReady, RemoteLogMetadata
from tests.simulation.clients import TIMEOUT_MS, Client, Consumer, Leaders, Producer
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.loop import Life
from tests.simulation.remote import CALL_S, Trouble
from tests.simulation.stage import Stage

METADATA_PARTITIONS = 2
METADATA = [TopicPartition(METADATA_TOPIC, index) for index in range(METADATA_PARTITIONS)]
SEGMENT_BYTES = 1000
RETENTION_BYTES = 6000
SLACK_BYTES = 2000
"""Bytes of a log that may be behind what was committed when retention measures it."""
CONFIG = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE,
    "rsm.config.dir": "/remote",
    "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
    "rlmm.config.remote.log.metadata.consume.wait.ms": "3000",
    "remote.log.manager.task.interval.ms": "200",
    "remote.log.manager.task.retry.backoff.ms": "100",
    "remote.log.manager.task.retry.backoff.max.ms": "500",
    "remote.fetch.max.wait.ms": "300",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
}
TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
KEPT = 20
"""Records at the end of a partition that nobody asks to delete."""
TWO_HOURS_MS = 2 * 60 * 60 * 1000


class Starts:
    """The log start offsets and the local ones of all replicas: where they may be, looked up after each step."""

    def __init__(self, stage: Stage, partitions: list[TopicPartition], retention_bytes: dict[str, int]) -> None:
        self.asked: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
        """Below these offsets somebody asked to delete records."""
        self.checks = 0
        self._stage = stage
        self._retention_bytes = retention_bytes
        self._seen: dict[Life, dict[Partition, tuple[int, int, bool]]] = {}
        self._highest = dict.fromkeys(partitions, 0)
        """The highest log start offset of a leader. Another one may lead before it knows of it."""

    def after_step(self, life: Life) -> None:
        """Looks at the replicas of a broker."""
        node = self._stage.cluster.nodes[life.broker_id]
        if node.life is not life or node.broker is None or not hasattr(node.broker, "services"):
            return
        remote = node.broker.services.remote
        if remote is None:
            return
        metadata = remote.metadata
        seen = self._seen.setdefault(life, {})
        hosted = node.broker.services.data.replica_manager
        for topic_partition in self.asked:
            partition = hosted.partition(*topic_partition)
            if partition is None:
                continue
            log = partition.log
            now = log.log_start_offset, log.local_log_start_offset, partition.is_leader
            before = seen.get(partition)
            if before != now:
                seen[partition] = now
                if now[2] and (before is None or not before[2]):
                    self._check_new_leader(partition)
                if before is not None:
                    self._check(partition, before[:2], now[:2], metadata)

    def _check_new_leader(self, partition: Partition) -> None:
        """A leader knows the epochs of all its records, by which the remote ones are found."""
        log = partition.log
        first, local = max(log.log_start_offset, self._highest[partition.topic_partition]), log.local_log_start_offset
        if first < local:
            epoch = log.leader_epochs.epoch_of(first)
            assert epoch is not None, (
                f"{partition.topic_partition}: broker {partition.broker_id} leads without the epochs of {first} to {local}"
            )

    def _check(self, partition: Partition, before: tuple[int, int], now: tuple[int, int], metadata: RemoteLogMetadata) -> None:
        """A log start moves when somebody asks, or retention does; a local one when all before it is in the store."""
        self.checks += 1
        topic_partition, log = partition.topic_partition, partition.log
        (start_before, local_before), (start, local) = before, now
        if partition.is_leader and start > max(start_before, self.asked[topic_partition]):
            committed = self._stage.invariants.committed[topic_partition]
            left = len(committed.bytes_between(start, committed.end_offset)) + SLACK_BYTES
            kept = self._retention_bytes.get(topic_partition.topic)
            assert kept is not None, f"{topic_partition} begins at {start}; nobody asked for more than {self.asked[topic_partition]}"
            assert left >= kept, f"{topic_partition} begins at {start}, and has {left} bytes from there on; retention keeps {kept}"
        if partition.is_leader:
            self._highest[topic_partition] = max(self._highest[topic_partition], start)
        # A follower that begins behind the remote records learns their epochs one step later.
        if local > local_before and (partition.is_leader or log.leader_epochs.epoch_of(local - 1) is not None):
            try:
                self._stage.cluster.objects.check_readable(metadata, None, log, max(start, local_before), local)
            except MetadataNotReady:
                raise AssertionError(f"{topic_partition}: local records are removed before the metadata are read") from None


class TieredConsumer(Consumer):
    """Reads a partition from where it begins on. An offset is out of range only where the log has none."""

    skipped = 0
    last_error = ErrorCode.NONE

    def on_error(self, leader: int, codes: list[int]) -> None:
        """See Consumer."""
        self.last_error = next(ErrorCode.of(code) for code in codes if code)
        if ErrorCode.OFFSET_OUT_OF_RANGE not in codes:
            return
        replica = self.cluster.replicas(self.topic, self.partition).get(leader)
        if replica is None or not replica.is_leader:
            return
        start = replica.log.log_start_offset
        if start > self.position:
            self.skipped += start - self.position
            self.position = start


class Deleter(Client):
    """Deletes records below some offset of some partition, now and then."""

    def __init__(self, stage: TieredStage, topic: str, leaders: Leaders, seed: int) -> None:
        super().__init__(stage.cluster, topic, seed)
        self._stage = stage
        self._leaders = leaders
        self.stopping = False

    async def run(self) -> None:
        """Until `stopping`."""
        partitions = [partition for partition in self._stage.partitions if partition.topic == self.topic]
        asked = self._stage.starts.asked
        while not self.stopping:
            await asyncio.sleep(self.random.expovariate(1))
            partition = self.random.choice(partitions)
            end = self._stage.invariants.committed[partition].end_offset
            asked[partition] = max(asked[partition], self.random.randint(0, max(end - KEPT, 0)))
            await self.delete(partition)

    async def delete(self, partition: TopicPartition) -> bool:
        """Deletes the records before the offset that was asked for. Returns whether a leader did so."""
        offset = self._stage.starts.asked[partition]
        topic = DeleteRecordsTopic(name=self.topic, partitions=[DeleteRecordsPartition(partition_index=partition.partition, offset=offset)])
        leader = await self._leaders.leader(partition.partition)
        try:
            request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
            answer = cast("DeleteRecordsResponse", await self.ask(leader, ApiKey.DELETE_RECORDS, 2, request))
        except PeerUnavailable:
            self._leaders.forget(partition.partition, leader)
            return False
        if answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            self._leaders.forget(partition.partition, leader)
            return False
        return True


class TieredStage(Stage):
    """A cluster with tiered topics, by name and configuration, each with some partitions."""

    def __init__(self, seed: int, brokers: int, topics: dict[str, dict[str, str]], partitions: int, **config: str) -> None:
        self.topics = topics
        self.partitions = [TopicPartition(topic, index) for topic in topics for index in range(partitions)]
        super().__init__(SimulatedCluster(seed, brokers, {**CONFIG, **config}), [*self.partitions, *METADATA], [])
        retention = {topic: int(config["retention.bytes"]) for topic, config in topics.items() if "retention.bytes" in config}
        self.starts = Starts(self, self.partitions, retention)
        self.cluster.objects.committed = self.invariants.committed
        self.cluster.loop.after_step = self._after_step
        self.leaders = {topic: Leaders(self.cluster, topic, self.random.getrandbits(32)) for topic in topics}

    async def begin(self) -> None:
        """Starts the brokers, and creates the topics."""
        await asyncio.gather(*(self.cluster.start(broker_id) for broker_id in self.cluster.nodes))
        partitions = len(self.partitions) // len(self.topics)
        for topic, config in self.topics.items():
            await self.create_topic(topic, partitions, {**TOPIC_CONFIG, **config})

    def producers(self) -> list[Producer]:
        """One for each partition."""
        return [
            Producer(
                self.cluster,
                each,
                self.leaders[each.topic],
                f"{each.topic}{each.partition}",
                self.invariants.committed[each],
                self.random.getrandbits(32),
            )
            for each in self.partitions
        ]

    def deleter(self, topic: str) -> Deleter:
        """Deletes records of a topic."""
        return Deleter(self, topic, self.leaders[topic], self.random.getrandbits(32))

    def consumers(self) -> list[TieredConsumer]:
        """One for each partition, at offset 0."""
        return [
            TieredConsumer(self.cluster, each, self.leaders[each.topic], self.invariants.committed[each], self.random.getrandbits(32))
            for each in self.partitions
        ]

    async def read_all(self) -> None:
        """Reads all partitions from their starts to their ends."""
        consumers = self.consumers()
        reading = [asyncio.create_task(each.run()) for each in consumers]
        self.tasks += reading
        await self.until(
            lambda: all(each.position == each.committed.end_offset for each in consumers),
            "consumers of all records",
            why=lambda: self.behind(consumers),
        )
        for each, partition in zip(consumers, self.partitions, strict=True):
            start = next(replica for replica in self.cluster.replicas(*partition).values() if replica.is_leader).log.log_start_offset
            assert each.skipped <= start, f"a consumer of {partition}, which begins at {start}, was told to skip {each.skipped} records"
        for task in reading:
            task.cancel()
            self.tasks.remove(task)

    def behind(self, consumers: list[TieredConsumer]) -> str:
        """Names the consumers that have not read everything, and what they last were answered."""
        return ", ".join(
            f"{each.committed.partition} is read up to {each.position} of {each.committed.end_offset}, the last error is {each.last_error}"
            for each in consumers
            if each.position != each.committed.end_offset
        )

    async def settle(self) -> None:
        """Waits until all that was begun is over: closed segments are in the store only, and nothing else is."""
        self.cluster.objects.trouble = Trouble()
        await self.until(self.is_whole, "every replica to be in sync")
        await asyncio.sleep(4 * CALL_S)  # requests that were late have arrived
        for node in self.cluster.nodes.values():
            node.clock.skew_ms += TWO_HOURS_MS  # so that copies of brokers that are gone count as abandoned
        await self.until(lambda: not self.unsettled() and self.is_whole(), "the remote store to settle", why=self.unsettled)
        self.invariants.check_at_the_end()

    def unsettled(self) -> str:
        """Names what is not as it is in the end; empty if all is."""
        known: set[bytes] = set()
        for partition in self.partitions:
            leader = next((replica for replica in self.cluster.replicas(*partition).values() if replica.is_leader), None)
            metadata = None if leader is None else self.cluster.objects.metadata_of(leader.broker_id)
            if leader is None or metadata is None:
                return f"{partition} has no leader"
            log = leader.log
            try:
                entries = metadata.all_entries(TopicIdPartition(log.topic_id, *partition))
            except MetadataNotReady:
                return f"the metadata of {partition} are not read"
            if any(entry.state is not SegmentState.COPY_SEGMENT_FINISHED for entry in entries):
                return f"{partition} has copies {[(entry.start_offset, entry.end_offset, entry.state.name) for entry in entries]}"
            active = log.segments.active.base_offset
            if log.local_log_start_offset != max(active, log.log_start_offset):
                return f"{partition} has local records from {log.local_log_start_offset} on, and its active segment begins at {active}"
            known.update(entry.id.uuid for entry in entries)
        objects = self.cluster.objects.parts
        return (
            ""
            if objects.keys() == known
            else f"the store has {len(objects.keys() - known)} copies that nobody knows, and lacks {len(known - objects.keys())}"
        )

    def _after_step(self, life: Life) -> None:
        self.invariants.after_step(life)
        self.starts.after_step(life)
