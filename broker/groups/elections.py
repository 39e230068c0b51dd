"""Becoming and ceasing to be coordinator, partition by partition of `__consumer_offsets`.

Called when this broker begins or ends to lead a partition. A partition is loaded by a task that reads in a worker thread and hands the
event loop back every few milliseconds; until it is done its groups answer COORDINATOR_LOAD_IN_PROGRESS. A partition that was lost, and
perhaps won again, while it loaded is not installed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager

from broker.groups.coordinated import CoordinatedGroups, OffsetsPartition
from broker.groups.group import Group
from broker.groups.loading import GroupLoader
from broker.groups.membership import on_loaded, on_unloaded
from broker.groups.runner import EffectRunner
from broker.request.internal_topics import GROUP_METADATA_TOPIC
from replication.leader.partition import Partition
from storage.disk.clock import Clock
from storage.errors import StorageError

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.0015
"""How long loading may hold the event loop at a time."""

RELEASED_PER_TURN = 5_000
"""How many offsets of groups that are gone are given back to the memory at a time: 0.5 ms. Each group counts for some."""

RELEASED_PER_GROUP = 50

TRUNCATION_POLL_SECONDS = 0.01


class Elections:
    """See the module."""

    __slots__ = ("_clock", "_groups", "_load_bytes", "_released", "_runner", "_tasks", "_while_loading", "_workers")

    def __init__(
        self,
        groups: CoordinatedGroups,
        runner: EffectRunner,
        clock: Clock,
        workers: Executor,
        load_bytes: int,
        while_loading: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._groups = groups
        self._runner = runner
        self._clock = clock
        self._workers = workers
        self._load_bytes = load_bytes
        self._while_loading = while_loading
        self._tasks: set[asyncio.Task[None]] = set()
        self._released: list[dict[str, Group]] = []

    def on_leadership_change(self, partition: Partition) -> None:
        """This broker leads a partition, or does not any more. Those of other topics are passed over."""
        topic, index = partition.topic_partition
        if topic != GROUP_METADATA_TOPIC:
            return
        owned = self._groups.partitions.get(index)
        if not partition.is_leader:
            if owned is not None:
                self._unload(owned)
        elif owned is not None:
            owned.leader_epoch = partition.leader_epoch
        else:
            self._elected(partition, index)

    async def stop(self) -> None:
        """Load no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def unload_all(self) -> None:
        """Whoever waits is told to look for another coordinator."""
        for owned in list(self._groups.partitions.values()):
            self._unload(owned)

    def _elected(self, partition: Partition, index: int) -> None:
        owned = self._groups.partitions[index] = OffsetsPartition(index, partition.leader_epoch)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            owned.is_loading = False
            return
        task = asyncio.get_running_loop().create_task(self._load(partition, owned), name=f"load-{GROUP_METADATA_TOPIC}-{index}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, partition: Partition, owned: OffsetsPartition) -> None:
        name = str(partition.topic_partition)
        began = self._clock.monotonic()
        loader = GroupLoader(name)
        groups: dict[str, Group] = {}
        try:
            with self._while_loading():
                await self._read(partition, owned, loader)
                await self._in_slices(loader.groups(self._groups.settings, self._clock.now_ms(), groups), owned)
                await self._in_slices(self._install(owned, groups), owned)
        except _Lost:
            logger.info("%s: not loaded to the end, this broker leads it no more", name)
            return
        except (StorageError, OSError) as error:
            logger.error(
                "%s: groups and offsets could not be loaded: %s. They are missing until the partition gets a new leader", name, error
            )
        except Exception:
            logger.exception("%s: groups and offsets could not be loaded. They are missing until the partition gets a new leader", name)
        else:
            logger.info(
                "%s: loaded %d groups with %d offsets in %d ms, leader epoch %d; %d records were left out",
                name,
                len(owned.groups),
                loader.offsets,
                (self._clock.monotonic() - began) * 1000,
                owned.leader_epoch,
                loader.skipped,
            )
        owned.is_loading = False

    async def _read(self, partition: Partition, owned: OffsetsPartition, loader: GroupLoader) -> None:
        loop = asyncio.get_running_loop()
        while partition.log.truncation is not None:  # it followed until now
            await asyncio.sleep(TRUNCATION_POLL_SECONDS)
            self._check(owned)
        offset = partition.log.log_start_offset
        # Asked for anew each time: the log may move to another directory meanwhile, and its files there are closed a minute later.
        while offset < (log := partition.log).log_end_offset:
            found = log.read(offset, self._load_bytes, log.log_end_offset, True)
            if found.region is None:
                break
            data = await loop.run_in_executor(self._workers, found.region.read)
            await self._in_slices(loader.feed(data), owned)
            offset = found.next_offset
        owned.loaded_end_offset = offset

    async def _in_slices(self, steps: Iterator[None], owned: OffsetsPartition) -> None:
        monotonic = self._clock.monotonic
        self._check(owned)
        slice_end = monotonic() + SLICE_SECONDS
        for _ in steps:
            if monotonic() >= slice_end:
                await asyncio.sleep(0)
                self._check(owned)
                slice_end = monotonic() + SLICE_SECONDS

    def _check(self, owned: OffsetsPartition) -> None:
        if self._groups.partitions.get(owned.index) is not owned:
            raise _Lost

    def _install(self, owned: OffsetsPartition, groups: dict[str, Group]) -> Iterator[None]:
        now_ms = self._clock.now_ms()
        for group in groups.values():
            owned.groups[group.group_id] = group
            for producer_id in group.offsets.transactional:
                owned.open_transactions.setdefault(producer_id, set()).add(group.group_id)
            self._runner.run(group, on_loaded(group, now_ms))
            yield

    def _unload(self, owned: OffsetsPartition) -> None:
        del self._groups.partitions[owned.index]
        now_ms = self._clock.now_ms()
        for group in owned.groups.values():
            self._runner.cancel_timers(group)
            self._runner.run(group, on_unloaded(group, now_ms))
        if owned.groups:
            logger.info("%s-%d: this broker coordinates its %d groups no more", GROUP_METADATA_TOPIC, owned.index, len(owned.groups))
            self._released.append(owned.groups)
            if len(self._released) == 1:
                asyncio.get_running_loop().call_soon(self._release_some)

    def _release_some(self) -> None:
        """Forget groups that are gone a few at a time: all the offsets of a partition are freed in more time than others should wait."""
        left = RELEASED_PER_TURN
        while self._released and left > 0:
            groups = self._released[-1]
            if groups:
                _, group = groups.popitem()
                left -= RELEASED_PER_GROUP + len(group.offsets.committed)
            else:
                self._released.pop()
        if self._released:
            asyncio.get_running_loop().call_soon(self._release_some)


class _Lost(Exception):
    """The partition that was being loaded is not led by this broker any more."""
