"""Builds a broker's handlers whose partitions have most of their segments in a remote store only."""

from __future__ import annotations

import asyncio
import time

from ottla.broker.request.services import RemoteServices
from ottla.replication.reading.remote_read import RemoteReads
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.origins import COORDINATOR
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.entries import SegmentEntry
from ottla.storage.remote.ports import MetadataNotReady
from tests.support.batches import a_batch, a_run
from tests.support.handler_bench import Asking, HandlerBench
from tests.support.logs import follow
from tests.support.remote_reading import Reading, a_reading, copy_closed_segments
from tests.support.remote_stores import at_once
from tests.support.replicas import TOPIC, state
from tests.support.services import an_empty
from tests.support.transactions import a_marker_batch, write_in_transaction

OFFSETS_OF_A_SEGMENT = 1 << 31
ANSWER_S = 20.0


class TieredBench(HandlerBench):
    """A bench with `partitions` partitions of 30 batches; only their last segments are on this broker after `move_away`."""

    def __init__(self, partitions: int = 1, **topic_config: str) -> None:
        super().__init__(**{"segment_bytes": "500", "index_interval_bytes": "100", **topic_config})
        self.replicas.say(*(state(index=index, isr=[0], replicas=[0]) for index in range(partitions)))
        self.know(**{f"p{index}": 0 for index in range(partitions)})
        self.copies: dict[PartitionLog, list[SegmentEntry]] = {}
        self.not_ready = False

    @property
    def logs(self) -> list[PartitionLog]:
        """The logs of the partitions."""
        return [partition.log for partition in self.replicas.manager.partitions[TOPIC].values()]

    def fill(self, batches: int = 30) -> None:
        """Produces to all partitions."""
        for index in range(len(self.logs)):
            for _ in range(batches):
                self.replicas.append(2, index=index)

    def leave_empty(self) -> range:
        """Makes a segment of partition 0 without records, as a follower of a compacted log does, and returns its offsets."""
        partition = self.replicas.manager.partitions[TOPIC][0]
        partition.log.roll()
        begin = partition.log.log_end_offset
        end = begin + OFFSETS_OF_A_SEGMENT
        follow(partition.log, a_batch(base_offset=end, leader_epoch=partition.leader_epoch), partition.leader_epoch)
        partition.log.update_high_watermark(partition.log.log_end_offset)
        return range(begin, end)

    def fill_with_transactions(self) -> None:
        """Produces two transactions to partition 0, one of them aborted, and of several segments each."""
        for at in range(30):
            write_in_transaction(self.replicas, at % 2, sequence=at // 2)
        for producer_id in range(2):
            partition = self.replicas.manager.partitions[TOPIC][0]
            partition.append(a_run(a_marker_batch(producer_id, commit=not producer_id)), -1, self.replicas.clock.now_ms(), COORDINATOR)

    def abort_transactions(self, count: int) -> None:
        """Produces transactions to partition 0 that are aborted one after the other, and one around all of them."""
        partition = self.replicas.manager.partitions[TOPIC][0]
        write_in_transaction(self.replicas, 0)
        for at in range(count):
            write_in_transaction(self.replicas, 1, sequence=at)
            partition.append(a_run(a_marker_batch(1, commit=False)), -1, self.replicas.clock.now_ms(), COORDINATOR)
        partition.append(a_run(a_marker_batch(0, commit=False)), -1, self.replicas.clock.now_ms(), COORDINATOR)

    async def move_away(self, *, chunk_bytes: int = 1 << 20, kept: int = 1, **caches: int) -> Reading:
        """Copies all closed segments, and removes them here, but for `kept` of them and the active one."""
        filesystem: FileSystem = self.logs[0].context.filesystem
        filesystem.make_directory("/shared")
        store = DirectoryStore(filesystem, "/shared", at_once)
        store.prepare()
        for number, log in enumerate(self.logs):
            self.copies[log] = await copy_closed_segments(log, store, partition=number)
            for segment in list(log.segments)[: -1 - kept]:
                log.segments.remove(segment)
                for path in segment.paths:
                    if filesystem.exists(path):
                        filesystem.unlink(path)
            log.reader.hints.clear()
        filesystem.make_directory("/cache")
        reading = a_reading(store, "/cache", filesystem=filesystem, chunk_bytes=chunk_bytes, **caches)
        self.services.remote = an_empty(RemoteServices)
        self.services.remote.reads = RemoteReads(reading.reader, self._copy_of, lambda: 400)
        return reading

    async def answered(self, asking: Asking) -> Asking:
        """The same, when the answer is there."""
        deadline = time.monotonic() + ANSWER_S
        while asking.waits:
            assert time.monotonic() < deadline, "there is no answer"
            await asyncio.sleep(0.001)  # a thread converts what clients of old versions get
        return asking

    def _copy_of(self, log: PartitionLog, offset: int) -> SegmentEntry | None:
        if self.not_ready:
            raise MetadataNotReady
        return next((entry for entry in self.copies[log] if entry.start_offset <= offset <= entry.end_offset), None)
