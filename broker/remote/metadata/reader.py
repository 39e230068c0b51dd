"""Reads the partitions of `__remote_log_metadata` that have the entries of the user partitions with a replica here.

One task for each leader fetches all that the leader has, and one task finds the topic and the leaders. No task ends before the reader is
closed: whatever goes wrong is logged once, and tried again.

A partition is read from the snapshot's offset on, or from its start. If the log has become another one, all of it is read again: entries
are forgotten when records were lost, but kept when someone has deleted the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from ottla.broker.remote.metadata import fetching
from ottla.broker.remote.metadata.peers import MetadataPeers
from ottla.broker.remote.metadata.refusals import Refusals
from ottla.broker.remote.metadata.snapshot_files import SnapshotFiles
from ottla.broker.remote.metadata.topic import MetadataTopic
from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.schema.wire import ProtocolError
from ottla.replication.ports.cluster import MetadataCache
from ottla.replication.ports.peer import Peer, PeerUnavailable
from ottla.storage.remote.entries import TopicIdPartition
from ottla.storage.remote.metadata.log import METADATA_TOPIC, MetadataLog
from ottla.storage.remote.metadata.partitions import metadata_partition

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 0.5
"""How often the topic and the leaders are looked at."""
SOON_SECONDS: Final = 0.02
"""The same while the topic is missing or a leader is not known, and the pause after a fetch that was answered at once without records."""
HIDDEN_SECONDS: Final = 300.0
"""How long a user partition without a replica here is remembered. Most of them come back after a restart or a move of their leader."""
BACKOFF_SECONDS: Final = 0.1
LONG_BACKOFF_SECONDS: Final = 1.0
"""The pause of a partition whose records cannot be taken in."""
LITTLE_BYTES: Final = 65_536
"""Old records up to this size are taken in as new ones are: they make no large tables."""
_EXPECTED: Final = (PeerUnavailable, ProtocolError, OSError)


class MetadataReader:
    """See the module. `logs` has what is known, by metadata partition."""

    def __init__(
        self,
        partition_count: int,
        cluster: MetadataCache,
        topic: MetadataTopic,
        peers: MetadataPeers,
        snapshots: SnapshotFiles,
        while_loading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Old records, and those of snapshots, are taken in within a context of `while_loading`."""
        self.logs: dict[int, MetadataLog] = {}
        self._partition_count = partition_count
        self._cluster = cluster
        self._topic = topic
        self._peers = peers
        self._snapshots = snapshots
        self._while_loading = while_loading
        self._topic_id: bytes | None = None
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._restored: set[int] = set()
        self._applied_before = 0
        self._skipped_before = 0
        """The counts of metadata partitions that are read no more."""
        self._pending: dict[int, asyncio.Timeout] = {}
        """By leader, the fetch that waits there for new records."""
        self._not_before: dict[int, float] = {}
        """By metadata partition, the time of the next attempt after a failed one."""
        self.refusals = Refusals(logger, "read")

    def start(self) -> None:
        """Begins to read. Call it on the event loop."""
        self._watching = asyncio.get_running_loop().create_task(self._watch(), name="remote-log-metadata")

    async def close(self) -> None:
        """Stops reading, and writes snapshots."""
        tasks = [*self._reading.values(), *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for log in self.logs.values():
            await self._save(log)

    # -- counts ------------------------------------------------------------------------------------------------------------

    @property
    def unread_partitions(self) -> int:
        """The user partitions whose lookups are refused."""
        return sum(not each.is_ready and each.hidden_at is None for log in list(self.logs.values()) for each in list(log.followed.values()))

    @property
    def applied(self) -> int:
        """The records that were applied."""
        return self._applied_before + sum(log.applied for log in self.logs.values())

    @property
    def skipped(self) -> int:
        """The records that were left out."""
        return self._skipped_before + sum(log.skipped for log in self.logs.values())

    # -- which partitions are followed -------------------------------------------------------------------------------------

    def index_of(self, partition: TopicIdPartition) -> int:
        """Returns the metadata partition of a user partition."""
        return metadata_partition(partition, self._partition_count)

    def log_of(self, partition: TopicIdPartition) -> MetadataLog | None:
        """Returns the log with the records of a user partition, if any partition of it is followed."""
        return self.logs.get(self.index_of(partition))

    def follow(self, partition: TopicIdPartition) -> None:
        """Reads the entries of a user partition from now on."""
        index = self.index_of(partition)
        log = self.logs.get(index)
        if log is None:
            log = self.logs[index] = MetadataLog(index)
        log.follow(partition)
        self._changed.set()
        if log.is_behind:
            self._interrupt(self._leader_of(index)[0])

    def _interrupt(self, leader: int) -> None:
        """Ends a fetch that waits for new records, because old ones are wanted. A new connection costs less than `MAX_WAIT_MS`."""
        pending = self._pending.pop(leader, None)
        if pending is not None:
            pending.reschedule(0)

    def unfollow(self, partition: TopicIdPartition) -> None:
        """Forgets a user partition, after a time in which it may come back."""
        log = self.log_of(partition)
        if log is None:
            return
        log.unfollow(partition, asyncio.get_running_loop().time())
        self._drop_hidden(log, HIDDEN_SECONDS)

    def _drop_hidden(self, log: MetadataLog, seconds: float) -> None:
        """Forgets what is hidden for so long. A metadata partition without any user partition is read no more."""
        log.drop_hidden(asyncio.get_running_loop().time() - seconds)
        if not log.followed:
            del self.logs[log.index]
            self._applied_before += log.applied
            self._skipped_before += log.skipped
            self._restored.discard(log.index)
            self.refusals.clear(log.name)

    # -- the topic ---------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            try:
                is_settled = await self._look()
            except Exception:  # a fault of this broker: nothing would be read any more
                logger.exception("%s cannot be looked after, which is tried again", METADATA_TOPIC)
                is_settled = True
            self._changed.clear()
            try:
                async with asyncio.timeout(None if not self.logs else WATCH_SECONDS if is_settled else SOON_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _look(self) -> bool:
        """Finds the topic and its leaders. Returns whether all partitions are being read."""
        for log in list(self.logs.values()):
            self._drop_hidden(log, HIDDEN_SECONDS)
        if not self.logs:
            return True
        if self._topic.is_missing():
            await self._topic.create()
            return False
        image = self._topic.image()
        if image is None:
            return True
        if self._topic_id is not None and image.topic_id != self._topic_id:
            logger.error(
                "%s was deleted and created again: this broker keeps the entries that it knows until it stops; "
                "segments that no record describes stay in the remote store",
                METADATA_TOPIC,
            )
            for log in self.logs.values():
                log.begin_anew(0, keeps_entries=True)
        self._topic_id = image.topic_id
        leaders = {self._leader_of(index)[0] for index in self.logs}
        for leader in leaders & self._cluster.brokers.keys() - self._reading.keys():
            task = asyncio.get_running_loop().create_task(self._read_from(leader), name=f"remote-log-metadata-{leader}")
            self._reading[leader] = task
        return leaders <= self._cluster.brokers.keys()

    def _leader_of(self, index: int) -> tuple[int, int]:
        return self._cluster.leader_of(METADATA_TOPIC, index)

    # -- a leader ----------------------------------------------------------------------------------------------------------

    async def _read_from(self, leader: int) -> None:
        """Reads while the broker leads a partition that is wanted."""
        peer = self._peers.to(leader)
        failures = 0
        try:
            await fetching.prepare()
            while logs := self._led_by(leader):
                try:
                    await self._read_once(peer, leader, logs)
                    failures = 0
                except _EXPECTED as error:
                    failures += 1  # a connection ends with each restart of a broker, which is no news
                    self._postpone(logs, str(error) if failures > 1 else "")
                except Exception as error:  # a fault of this broker: nothing would be read any more
                    logger.exception("%s cannot be read from broker %d, which is tried again", METADATA_TOPIC, leader)
                    self._postpone(logs, repr(error), LONG_BACKOFF_SECONDS)
        finally:
            del self._reading[leader]
            await peer.close()

    def _led_by(self, leader: int) -> list[MetadataLog]:
        image = self._topic.image()
        if image is None or image.topic_id != self._topic_id or leader not in self._cluster.brokers:
            return []
        return [log for log in self.logs.values() if self._leader_of(log.index)[0] == leader]

    async def _read_once(self, peer: Peer, leader: int, logs: list[MetadataLog]) -> None:
        now = asyncio.get_running_loop().time()
        due = [log for log in logs if self._not_before.get(log.index, 0) <= now]
        if not due:
            await asyncio.sleep(BACKOFF_SECONDS)
            return
        for log in due:
            await self._restore(log)
        await self._ask_for_ends(peer, [log for log in due if log.target is None])
        due.sort(key=lambda log: not log.is_behind)  # the answer has room for the first ones
        topic_id = self._topic_id
        assert topic_id is not None
        asked = {log.index: (log, log.generation) for log in due}  # another log of the same index may come, and begins at generation 0
        epochs = {log.index: self._leader_of(log.index)[1] for log in due}
        may_wait = all(log in due and not log.is_behind for log in self._led_by(leader))  # more may be followed by now
        try:
            async with asyncio.timeout(None) as pending:
                if may_wait:
                    self._pending[leader] = pending
                response = await fetching.fetch(peer, topic_id, due, epochs, fetching.MAX_WAIT_MS if may_wait else 0)
        except TimeoutError:
            if not pending.expired():
                raise
            return  # interrupted
        finally:
            self._pending.pop(leader, None)
        await asyncio.sleep(0)  # the answer was decoded in this turn: a third of a millisecond for a whole one
        if response.error_code:
            raise PeerUnavailable(f"the leader answered {ErrorCode.of(response.error_code).name}")
        is_empty = True
        for answer in fetching.answers(response):
            await pause()  # here, so that the time for a copy of the bytes counts: half a millisecond
            found = self.logs.get(answer.partition_index)
            if found is not None and asked.get(found.index) == (found, found.generation) and topic_id == self._topic_id:
                is_empty = not await self._take(peer, found, answer) and is_empty
        for log in due:
            if self._snapshots.is_due(log):
                await self._save(log)
        if is_empty and asyncio.get_running_loop().time() - now < SOON_SECONDS:
            await asyncio.sleep(SOON_SECONDS)

    async def _restore(self, log: MetadataLog) -> None:
        """Begins with the snapshot of the partition, before the first fetch."""
        if log.index in self._restored or self._topic_id is None:
            return
        self._restored.add(log.index)
        with self._while_loading():
            snapshot = await self._snapshots.load(self._topic_id, log.index)
        if snapshot is not None and log.position == 0 and self.logs.get(log.index) is log:
            log.restore(*snapshot, asyncio.get_running_loop().time())

    async def _ask_for_ends(self, peer: Peer, logs: list[MetadataLog]) -> None:
        if not logs:
            return
        generations = {log.index: log.generation for log in logs}
        ends, errors = await fetching.list_offsets(peer, generations, fetching.LATEST)
        for log in logs:
            if log.index in ends and log.generation == generations[log.index]:
                log.on_end_offset(ends[log.index])
            elif log.index in errors:
                self._postpone([log], errors[log.index].name)

    async def _take(self, peer: Peer, log: MetadataLog, answer: PartitionData) -> bool:
        """Takes in the answer for a partition. Returns whether it had records."""
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE or answer.diverging_epoch.epoch >= 0:
            await self._find_place(peer, log, is_diverging=code is ErrorCode.NONE)
            return False
        if code is not ErrorCode.NONE:
            self._postpone([log], code.name)
            return False
        self.refusals.clear(log.name)
        if not answer.records:
            return False
        try:
            with self._while_loading() if log.is_behind and len(answer.records) > LITTLE_BYTES else nullcontext():
                await log.take(bytes(answer.records))
        except RecordFormatError as error:
            self._postpone([log], str(error), LONG_BACKOFF_SECONDS)
        return True

    async def _find_place(self, peer: Peer, log: MetadataLog, *, is_diverging: bool) -> None:
        """Goes on where the log begins, or reads all of it again."""
        generation = log.generation
        starts, start_errors = await fetching.list_offsets(peer, [log.index], fetching.EARLIEST)
        ends, end_errors = await fetching.list_offsets(peer, [log.index], fetching.LATEST)
        if generation != log.generation:
            return
        if log.index not in starts or log.index not in ends:
            code = start_errors.get(log.index) or end_errors.get(log.index, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._postpone([log], code.name)
            return
        start, end = starts[log.index], ends[log.index]
        if is_diverging or log.position > end:
            logger.error("%s: records up to offset %d were lost, it ends at %d: all of it is read again", log.name, log.position, end)
            log.begin_anew(start, keeps_entries=False)
        elif log.position < start:
            if log.position:
                logger.error("%s: the records from offset %d to %d were deleted before they were read", log.name, log.position, start)
            log.skip_to(start)

    def _postpone(self, logs: Iterable[MetadataLog], reason: str, seconds: float = BACKOFF_SECONDS) -> None:
        until = asyncio.get_running_loop().time() + seconds
        for log in logs:
            self._not_before[log.index] = until
            if reason:
                self.refusals.report(log.name, reason)

    async def _save(self, log: MetadataLog) -> None:
        if self._topic_id is not None:
            await self._snapshots.save(self._topic_id, log)
