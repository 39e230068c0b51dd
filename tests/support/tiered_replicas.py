"""Runs the tasks of a leader of a tiered partition in memory, step by step."""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.replication.leader.isr import IsrChanges
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.remote.byte_quota import COPY, ByteQuota
from ottla.replication.remote.copies import Copier, CopyServices
from ottla.replication.remote.counters import RemoteCounters
from ottla.replication.remote.expiry import Expiry
from ottla.replication.remote.leadership import Leadership
from ottla.replication.remote.positions import CopiesOf, find_log_start, refresh
from ottla.replication.remote.removals import Removals
from ottla.replication.remote.settings import RemoteSettings
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from ottla.storage.remote.entries import SegmentEntry, SegmentState, TopicIdPartition
from ottla.storage.remote.memory_budget import MemoryBudget
from tests.support.batches import a_batch
from tests.support.clocks import ManualClock
from tests.support.filesystems import MemoryFileSystem
from tests.support.logs import LOG_DIR, T0, a_context, a_topic_config, append
from tests.support.remote_fakes import MemoryMetadata, MemoryStore, SlowBackground
from tests.support.replicas import state

TOPIC_ID = b"id of the topic."
TIERED = TopicIdPartition(TOPIC_ID, *T0)
BROKER = {"remote.log.storage.system.enable": "true"}


def leads(partition: Partition, epoch: int) -> None:
    """The broker of the partition becomes its leader, and is the only replica."""
    alone = (partition.broker_id,)
    partition.become_leader(state(partition.broker_id, epoch, alone, alone, partition_epoch=epoch), 0)


def follows(partition: Partition, leader: int, epoch: int) -> None:
    """The broker of the partition becomes a follower."""
    partition.become_follower(state(leader, epoch, (leader,), (leader, partition.broker_id), partition_epoch=epoch))


class TieredReplica:
    """The replica of topic-0 on one broker. Each record has a segment of its own unless `segment_batches` says otherwise."""

    def __init__(
        self,
        filesystem: FileSystem | None = None,
        *,
        broker_id: int = 1,
        metadata: MemoryMetadata | None = None,
        store: MemoryStore | None = None,
        clock: ManualClock | None = None,
        segment_batches: int = 1,
        **config: str | int,
    ) -> None:
        self.clock = clock or ManualClock()
        self.filesystem = filesystem or MemoryFileSystem()
        self.metadata = metadata or MemoryMetadata()
        self.store = store or MemoryStore(self.filesystem)
        self.broker_id = broker_id
        self.broker: dict[str, str] = BROKER
        self.topic_config = {
            "remote.storage.enable": "true",
            "segment.bytes": str(len(a_batch()) * segment_batches),
            "segment.index.bytes": "1200",
            "retention.ms": "-1",
            **{name.replace("_", "."): str(value) for name, value in config.items()},
        }
        self._uuids = 0
        self.log = self.open()
        self.partition = Partition(broker_id, T0, self.log, IsrChanges(MetadataCache(), self.clock, 10_000, None))
        self.counters = RemoteCounters()
        self.forgotten: list[SegmentEntry] = []
        """Copies of which the caches shall keep nothing."""
        properties = BrokerConfig(BROKER)
        self.budget = MemoryBudget(64 << 20)
        self.services = CopyServices(
            self.store,
            self.metadata,
            RemoteSettings(properties, broker_id, lambda: 0.5),
            SlowBackground(),
            self.clock,
            self._random_bytes,
            ByteQuota(properties, COPY, self.clock),
            self.counters,
            self.forgotten.append,
            self.budget,
        )
        self.metadata.follow(TIERED)
        self.copier: Copier | None = None

    def open(self, *, clean: bool = True, log_start_offset: int | None = None, recovery_point: int = 0) -> PartitionLog:
        """The log in the file system, as a start finds it."""
        config = a_topic_config(self.topic_config, self.broker)
        return open_log(
            a_context(self.filesystem, self.clock),
            T0,
            LOG_DIR,
            config,
            topic_id=TOPIC_ID,
            clean_shutdown=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
        )

    def _random_bytes(self, length: int) -> bytes:
        self._uuids += 1
        return bytes([self.broker_id]) + self._uuids.to_bytes(length - 1, "big")

    def lead(self, leader_epoch: int = 0) -> None:
        """Becomes leader."""
        leads(self.partition, leader_epoch)
        leadership = Leadership(self.partition)
        self.copier = Copier(self.services, leadership, TIERED)
        self.expiry = Expiry(
            self.services, Removals(self.store, self.metadata, self.broker_id, self.clock, self.forgotten.append), leadership, TIERED
        )

    def produce(self, batches: int, *, timestamp: int | None = None) -> None:
        """Appends batches of a record each, which are replicated at once."""
        for _ in range(batches):
            at = self.clock.now_ms() if timestamp is None else timestamp
            append(self.log, a_batch(timestamps=[at]), epoch=max(self.partition.leader_epoch, 0))
        self.log.update_high_watermark(self.log.log_end_offset)

    async def copy_all(self) -> None:
        """Copies what can be copied."""
        assert self.copier is not None
        copies = CopiesOf(self.metadata, TIERED)
        refresh(self.log, copies)
        find_log_start(self.log, copies)
        while await self.copier.copy_next():
            pass

    def ranges(self, state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED) -> list[tuple[int, int]]:
        """The offsets of the entries in a state."""
        return [(each.start_offset, each.end_offset) for each in self.entries() if each.state == state]

    def entries(self) -> list[SegmentEntry]:
        """All entries, by start offset."""
        return sorted(self.metadata.all_entries(TIERED), key=lambda each: (each.start_offset, each.id.uuid))
