"""Runs the tasks of tiered storage for the replicas of this broker: Kafka's RemoteLogManager.

A leader copies closed segments, and removes old ones. A follower learns what is in the remote store, so that it need not keep that.
The tasks of a replica begin when it gets its role, and end when it loses it, in the same call: from then on nothing is published.
The topic's deletion removes its segments from the store, which continues in the background until the store has done it.

All tasks run on the event loop. `remote.log.manager.*.thread.pool.size` limit how many of them work at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial

from ottla.pauses import pause
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.leader.partition import Partition
from ottla.replication.remote.byte_quota import ByteQuota
from ottla.replication.remote.copies import Copier, CopyServices, CustomMetadataTooLarge
from ottla.replication.remote.counters import RemoteCounters, RemotePartitionState
from ottla.replication.remote.expiry import Expiry
from ottla.replication.remote.leadership import Deposed, Leadership
from ottla.replication.remote.other_log import follow_mark, is_of_other_log
from ottla.replication.remote.positions import CopiesOf, has_log_start, refresh
from ottla.replication.remote.removals import Removals
from ottla.storage.errors import StorageError
from ottla.storage.remote.entries import SegmentEntry, TopicIdPartition
from ottla.storage.remote.ports import MetadataNotReady, MetadataWriteFailed, RemoteStoreDenied, RemoteStoreError, StoreClockApart

logger = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
"""Time for which the same failure of the store is not logged again."""

Step = Callable[[], Awaitable[bool | None]]
"""Does some work. Returns whether there may be more at once; None if there will never be more."""


class _Replica:
    """A replica with remote storage, and the tasks of its role."""

    __slots__ = ("copier", "leadership", "partition", "tasks")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.leadership: Leadership | None = None
        self.copier: Copier | None = None
        self.tasks: list[asyncio.Task[None]] = []


IsGone = Callable[[], Awaitable[bool]]
"""Tells if a topic still does not exist. Raises an error if that is not known."""


class _Leftovers:
    """Copies that the store has of a partition whose topic does not exist."""

    __slots__ = ("are_ours", "copies", "is_gone")

    def __init__(self, copies: list[SegmentEntry], is_gone: IsGone) -> None:
        self.copies = copies
        self.is_gone = is_gone
        self.are_ours = False
        """Whether an entry has shown that the partition is one of this cluster."""


class RemoteLogManager:
    """See the module."""

    def __init__(self, services: CopyServices) -> None:
        settings = services.settings
        self._services = services
        self._removals = Removals(services.store, services.metadata, settings.broker_id, services.clock, services.forget)
        self._copy_slots = asyncio.Semaphore(settings.copiers)
        self._expiry_slots = asyncio.Semaphore(settings.expirers)
        self._replicas: dict[TopicPartition, _Replica] = {}
        self._deletions: set[TopicIdPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._quiet_until: dict[str, float] = {}
        self._is_stopped = False
        self._copying = 0
        """Partitions whose copies are in progress."""
        self.strange: set[TopicIdPartition] = set()
        """Partitions of leftovers that stay, because the metadata have no entry of them."""

    @property
    def counters(self) -> RemoteCounters:
        """Returns the counters of this broker."""
        return self._services.counters

    @property
    def copy_quota(self) -> ByteQuota:
        """Returns the quota of the copies."""
        return self._services.quota

    @property
    def idle_share(self) -> float:
        """Returns the part of the copies that could run and do not: 1 if none does."""
        return 1 - self._copying / self._services.settings.copiers

    # -- roles -------------------------------------------------------------------------------------------------------------

    def on_leadership_change(self, partition: Partition) -> None:
        """Begins the tasks of a replica that became leader or follower, and ends those of its former role. Also for one that was removed,
        or whose topic got its remote storage."""
        if self._is_stopped:
            return
        topic_partition = partition.topic_partition
        former = self._replicas.pop(topic_partition, None)
        if former is not None:
            self._end(former)
        if partition.log.tier is not None and partition.log.topic_id == ZERO_UUID:
            logger.error("%s: nothing is copied, because the topic has no id; raise inter.broker.protocol.version", topic_partition)
        if not partition.is_online or partition.log.tier is None or partition.log.topic_id == ZERO_UUID:
            self._services.counters.partitions.pop(topic_partition, None)
            if former is not None and former.partition not in self._deletions:
                self._services.metadata.unfollow(former.partition)
            return
        replica = self._replicas[topic_partition] = _Replica(TopicIdPartition(partition.log.topic_id, *topic_partition))
        self._services.metadata.follow(replica.partition)
        if partition.is_leader:
            self._begin_leader(replica, partition)
        else:
            self._services.counters.partitions.pop(topic_partition, None)
            self._begin(replica, partial(self._follow, replica, partition), None)

    def on_config_change(self, partition: Partition) -> None:
        """Begins the tasks if the topic has its remote storage only now."""
        if partition.log.tier is not None and partition.topic_partition not in self._replicas and partition.leader_epoch >= 0:
            self.on_leadership_change(partition)

    async def on_partitions_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """A controller reported that it deleted the topics of these: removes the segments of the partitions that this broker leads."""
        for topic_partition in partitions:
            replica = self._replicas.get(topic_partition)
            if replica is not None and replica.leadership is not None and replica.partition not in self._deletions:
                self._end(replica)
                self._begin_deletion(replica.partition, None)

    def on_leftovers(self, partition: TopicIdPartition, copies: list[SegmentEntry], is_gone: IsGone) -> None:
        """The store has copies of a topic that does not exist any more: removes its entries and their objects, and then these objects.

        Nothing goes of a partition without any entry. It may be one of another cluster that shares the store, or the metadata may be lost.
        """
        if partition not in self._deletions and all(each.partition != partition for each in self._replicas.values()):
            self._services.metadata.follow(partition)
            self._begin_deletion(partition, _Leftovers(copies, is_gone))

    async def stop(self) -> None:
        """Ends all tasks, and begins no more. The rest is done after the next start, or by the next leader."""
        self._is_stopped = True
        for replica in self._replicas.values():
            self._end(replica)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._replicas.clear()

    def _begin_leader(self, replica: _Replica, partition: Partition) -> None:
        leadership = replica.leadership = Leadership(partition)
        copier = replica.copier = Copier(self._services, leadership, replica.partition)
        expiry = Expiry(self._services, self._removals, leadership, replica.partition)
        self._services.counters.partitions[partition.topic_partition] = RemotePartitionState()
        self._begin(replica, partial(self._copy, replica, leadership, copier), self._copy_slots)
        self._begin(replica, partial(self._expire, leadership, expiry), self._expiry_slots)

    def _begin(self, replica: _Replica, step: Step, slots: asyncio.Semaphore | None) -> None:
        name = f"{replica.partition.topic}-{replica.partition.partition}"
        replica.tasks.append(self._start(self._repeat(name, step, slots), f"remote storage of {name}"))

    def _begin_deletion(self, partition: TopicIdPartition, leftovers: _Leftovers | None) -> None:
        if not self._is_stopped:
            self._deletions.add(partition)
            self._start(self._delete_all(partition, leftovers), f"remote deletion of {partition.topic}-{partition.partition}")

    def _start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self, replica: _Replica) -> None:
        for task in replica.tasks:
            task.cancel()
        if replica.copier is not None:
            replica.copier.stop()

    # -- tasks -------------------------------------------------------------------------------------------------------------

    async def _repeat(self, name: str, step: Step, slots: asyncio.Semaphore | None) -> None:
        """Does the step every `remote.log.manager.task.interval.ms`, at once if there is more, and later after a failure."""
        settings = self._services.settings
        failures = 0
        while True:
            try:
                async with slots or _UNLIMITED:
                    await pause()  # the tasks of thousands of partitions are due together
                    has_more = await step()
                if has_more is None:
                    return
                failures = 0
                wait_ms: float = 0 if has_more else settings.interval_ms
            except (Deposed, CustomMetadataTooLarge) as end:
                if isinstance(end, CustomMetadataTooLarge):
                    logger.error("%s", end)
                return
            except MetadataNotReady:
                wait_ms = settings.backoff_ms
            except Exception as error:
                failures += 1
                wait_ms = settings.wait_ms(failures)
                self._report(name, error, wait_ms)
            await asyncio.sleep(wait_ms / 1000)

    async def _copy(self, replica: _Replica, leadership: Leadership, copier: Copier) -> bool:
        if await is_of_other_log(self._services, leadership, replica.partition):
            return False
        copies = CopiesOf(self._services.metadata, replica.partition)
        log = leadership.check()
        refresh(log, copies)
        has_log_start(leadership, copies)
        self._copying += 1
        try:
            return await copier.copy_next()
        finally:
            self._copying -= 1

    async def _expire(self, leadership: Leadership, expiry: Expiry) -> bool:
        leadership.check()
        await expiry.run()
        return False

    async def _follow(self, replica: _Replica, partition: Partition) -> bool:
        follow_mark(partition.log, self._services, replica.partition)
        refresh(partition.log, CopiesOf(self._services.metadata, replica.partition))
        return False

    async def _delete_all(self, partition: TopicIdPartition, leftovers: _Leftovers | None) -> None:
        """Removes all segments of a deleted partition; repeated until it is done. The partition is gone, so nothing else writes entries."""
        name = f"{partition.topic}-{partition.partition}"
        try:
            await self._repeat(name, partial(self._delete_some, partition, leftovers), self._expiry_slots)
        finally:
            self._deletions.discard(partition)
            if all(each.partition != partition for each in self._replicas.values()):
                self._services.metadata.unfollow(partition)
            if all(each.partition.topic != partition.topic for each in self._replicas.values()):
                self._services.counters.topics.pop(partition.topic, None)

    async def _delete_some(self, partition: TopicIdPartition, leftovers: _Leftovers | None) -> bool | None:
        """Removes all segments but those that a cancelled copy may still be writing, and then the objects that no entry names."""
        busy = False
        stats = self._services.counters.of(partition.topic)
        entries = self._services.metadata.all_entries(partition)  # as they are now, unpacked one by one
        if leftovers is not None:
            leftovers.are_ours |= len(entries) > 0
            if not leftovers.are_ours:
                self.strange.add(partition)
                self._warn_of_strange_copies(partition)
                return None
        for entry in entries:
            if entry.id in self._services.being_copied:
                busy = True
                continue
            if leftovers is not None and not await leftovers.is_gone():
                return None
            stats.delete_requests += 1
            await self._removals.remove(entry, lambda: None)
        if busy or len(self._services.metadata.all_entries(partition)):
            return False
        while leftovers is not None and leftovers.copies and await leftovers.is_gone():
            await self._services.store.delete(leftovers.copies[-1])
            leftovers.copies.pop()
        return None

    def _warn_of_strange_copies(self, partition: TopicIdPartition) -> None:
        if self._is_news("strange copies"):
            logger.warning(
                "%s-%d: copies in the remote store stay, because the metadata have no entry of this partition. They may belong to another "
                "cluster. ottla remote scrub lists them",
                partition.topic,
                partition.partition,
            )

    def _is_news(self, kind: str) -> bool:
        """Whether such a line was not logged for a minute, and is logged now."""
        now = asyncio.get_running_loop().time()
        if now < self._quiet_until.get(kind, 0.0):
            return False
        self._quiet_until[kind] = now + QUIET_SECONDS
        return True

    def _report(self, name: str, error: Exception, wait_ms: float) -> None:
        """Logs a failure. One of the store concerns all partitions, and is logged once a minute."""
        if not isinstance(error, RemoteStoreError | MetadataWriteFailed | StorageError | OSError):
            logger.error("%s: unexpected error of a task of tiered storage; trying again in %d ms", name, wait_ms, exc_info=error)
            return
        if not self._is_news(type(error).__name__):
            return
        advice = "; check the credentials of the remote store" if isinstance(error, RemoteStoreDenied) else ""
        level = logging.ERROR if isinstance(error, StoreClockApart) else logging.WARNING
        logger.log(level, "%s: the remote storage task failed: %s; trying again in %d ms%s", name, error, wait_ms, advice)


class _Unlimited:
    """Stands for the slots of work that is not limited."""

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


_UNLIMITED = _Unlimited()
