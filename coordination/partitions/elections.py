"""Loads and unloads the states of a coordinator, partition by partition of its internal topic.

Called when this broker becomes leader of a partition, or is no longer leader. A task loads a partition: it reads in a worker thread, and
yields to the event loop every few milliseconds. Until it is done, requests for its states get COORDINATOR_LOAD_IN_PROGRESS. If this broker
lost the leadership during the load, even if it has won it again, the result is dropped. A partition that cannot be loaded is not served,
and is read again later: a group without its offsets would start from scratch, and a transactional id without its state would fence no
producer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Generic, Protocol

from ottla.coordination.partitions.load_times import LoadTimes
from ottla.coordination.partitions.owned import OwnedPartition, OwnedStates, State
from ottla.large_table import LargeTable
from ottla.pauses import begin, is_over, pause
from ottla.replication.leader.partition import Partition
from ottla.storage.disk.clock import Clock
from ottla.storage.errors import StorageError
from ottla.storage.log.pending_topic_id import is_durable

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""Pause before the log of a partition is read again after its disk or its load failed."""

POLL_SECONDS = 0.01
"""Pause between two checks of a log that takes no appends yet, or whose end is not on all in-sync replicas, seconds."""


class Loader(Protocol[State]):
    """Reads the states of a partition from the bytes of its log. `feed` and `states` pause every few records."""

    skipped: int
    """Records that could not be read and were left out."""

    def feed(self, data: bytes) -> Iterator[None]:
        """Read whole batches, the next ones in the log."""

    def states(self, now_ms: int, into: MutableMapping[str, State]) -> Iterator[None]:
        """Put the states into `into`, by key."""

    def found(self, states: int) -> str:
        """The number of states, for the log: "3 groups"."""


class StateKind(Protocol[State]):
    """The kind of states that a coordinator keeps in the partitions of its topic: how they are loaded, and the consequences of loading and
    unloading."""

    @property
    def noun(self) -> str:
        """The name of the states, for the log: "groups"."""

    @property
    def waits_for_replicas(self) -> bool:
        """Whether states are served, and acted on, only when all in-sync replicas have the loaded records."""

    def loader(self, name: str) -> Loader[State]:
        """A reader for the log of a partition of this name."""

    def on_loaded(self, state: State) -> None:
        """The state was read from the log and is served from now on."""

    def on_lost(self) -> None:
        """This broker no longer leads a partition. `on_unloaded` follows for each of its states, with pauses."""

    def on_unloaded(self, state: State) -> None:
        """This broker no longer coordinates the state, which is not among the owned ones any more."""


class Elections(Generic[State]):
    """See the module."""

    __slots__ = ("_clock", "_kind", "_load_bytes", "_owned", "_released", "_tasks", "_while_loading", "_workers", "load_times")

    def __init__(
        self,
        owned: OwnedStates[State],
        kind: StateKind[State],
        clock: Clock,
        workers: Executor,
        load_bytes: int,
        while_loading: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._owned = owned
        self._kind = kind
        self._clock = clock
        self._workers = workers
        self._load_bytes = load_bytes
        self._while_loading = while_loading
        self._tasks: set[asyncio.Task[None]] = set()
        self._released: deque[Iterator[tuple[str, State]]] = deque()
        """The states to unload, by lost partition."""
        self.load_times = LoadTimes(clock.monotonic)

    def on_leadership_change(self, partition: Partition) -> None:
        """This broker has become leader of a partition, or is no longer leader. Partitions of other topics are ignored."""
        topic, index = partition.topic_partition
        if topic != self._owned.topic:
            return
        owned = self._owned.partitions.get(index)
        if not partition.is_leader:
            if owned is not None:
                self._unload(owned)
        elif owned is not None:
            owned.leader_epoch = partition.leader_epoch
        else:
            self._elected(partition, index)

    async def stop(self) -> None:
        """Stop loading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def unload_all(self) -> None:
        """Unload all partitions; waiting clients get an error that makes them look for another coordinator."""
        for owned in list(self._owned.partitions.values()):
            self._unload(owned)
        await self._release()

    def _elected(self, partition: Partition, index: int) -> None:
        owned = self._owned.partitions[index] = OwnedPartition(index, partition.leader_epoch)
        if _is_empty(partition) and is_durable(partition.log):
            owned.end_loading()
            return
        task = asyncio.get_running_loop().create_task(self._load(partition, owned), name=f"load-{self._owned.topic}-{index}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, partition: Partition, owned: OwnedPartition) -> None:
        while await self._has_to_load_again(partition, owned):
            await asyncio.sleep(RETRY_SECONDS)
            owned.load_again()

    async def _has_to_load_again(self, partition: Partition, owned: OwnedPartition) -> bool:
        """Load the partition; True if that failed, and has to be repeated."""
        name = str(partition.topic_partition)
        noun = self._kind.noun
        began = self._clock.monotonic()
        loader = self._kind.loader(name)
        states: LargeTable[str, State] = LargeTable()
        try:
            self._check(owned)
            await self._until_readable(partition, owned)
            if _is_empty(partition):
                owned.end_loading()
                return False
            with self._while_loading():
                await self._read(partition, owned, loader)
                await self._in_slices(loader.states(self._clock.now_ms(), states), owned)
                owned.states = states
                await self._in_slices(self._begin(states, owned), owned)
                await self._in_slices(owned.catch_up(), owned)
        except _Lost:
            logger.info("%s: not loaded to the end, this broker leads it no more", name)
            return False
        except (StorageError, OSError) as error:
            logger.error(
                "%s: the %s in it could not be loaded: %s. They are not served; trying again in %d s", name, noun, error, RETRY_SECONDS
            )
            self._give_up(owned, states)
            return True
        except Exception:  # a lack of memory, for example, which may pass
            logger.exception("%s: the %s in it could not be loaded. They are not served; trying again in %d s", name, noun, RETRY_SECONDS)
            self._give_up(owned, states)
            return True
        took = self._clock.monotonic() - began
        self.load_times.add(took)
        logger.info(
            "%s: loaded %s in %d ms, leader epoch %d; %d records were left out",
            name,
            loader.found(len(owned.states)),
            took * 1000,
            owned.leader_epoch,
            loader.skipped,
        )
        owned.end_loading()
        return False

    def _give_up(self, owned: OwnedPartition, states: LargeTable[str, State]) -> None:
        """Stop serving the states. Some of them may have timers already."""
        owned.fail()
        self._lose(owned.index, states)

    async def _read(self, partition: Partition, owned: OwnedPartition, loader: Loader[State]) -> None:
        loop = asyncio.get_running_loop()
        offset = partition.log.log_start_offset
        # Looked up each time: the log may move to another directory meanwhile, and its old files are closed a minute later.
        while offset < (log := partition.log).log_end_offset:
            found = log.read(offset, self._load_bytes, log.log_end_offset, True)
            if found.region is None:
                break
            data = await loop.run_in_executor(self._workers, found.region.read)
            self._check(owned)
            await self._in_slices(loader.feed(data), owned)
            offset = found.next_offset
        owned.loaded_end_offset = offset

    async def _until_readable(self, partition: Partition, owned: OwnedPartition) -> None:
        """Wait until the log takes appends, and for the high watermark if the states need it.

        A record above the high watermark is lost if this broker dies, after others may have learned of its state. No record follows
        meanwhile: only the coordinator writes to the partition.
        """
        while partition.log.truncations.current is not None or not is_durable(partition.log):
            await self._poll(owned)
        if self._kind.waits_for_replicas:
            end_offset = partition.log.log_end_offset
            while partition.log.high_watermark < end_offset:
                await self._poll(owned)

    async def _poll(self, owned: OwnedPartition) -> None:
        await asyncio.sleep(POLL_SECONDS)
        self._check(owned)

    async def _in_slices(self, steps: Iterator[None], owned: OwnedPartition) -> None:
        for _ in steps:
            if is_over():
                await pause()
                self._check(owned)

    def _check(self, owned: OwnedPartition) -> None:
        if self._owned.partitions.get(owned.index) is not owned:
            raise _Lost

    def _begin(self, states: LargeTable[str, State], owned: OwnedPartition) -> Iterator[None]:
        displaced = 0
        for key, state in states.keys_and_values():
            displaced += self._owned.on_loaded(key, owned.index)  # first, so that the state is found by its own effects
            self._kind.on_loaded(state)
            yield
        if displaced:
            logger.warning(
                "%s-%d: %d of the %s in it belong to another partition, because partitions were added to the topic. They stay here, "
                "and are found only while one broker leads both partitions",
                self._owned.topic, owned.index, displaced, self._kind.noun,
            )  # fmt: skip

    def _unload(self, owned: OwnedPartition) -> None:
        del self._owned.partitions[owned.index]
        states = owned.states
        if states:
            logger.info("%s-%d: this broker coordinates its %d %s no more", self._owned.topic, owned.index, len(states), self._kind.noun)
        self._lose(owned.index, states)

    def _lose(self, index: int, states: LargeTable[str, State]) -> None:
        self._owned.on_unloaded(index)
        self._kind.on_lost()
        if states:
            self._released.append(states.drain())
            if len(self._released) == 1:
                begin(self._release())

    async def _release(self) -> None:
        """Unload and free states one by one: all states of a partition would block the event loop for too long."""
        while self._released:
            states = self._released[0]
            for _, state in states:
                try:
                    self._kind.on_unloaded(state)
                except Exception:  # the clients of the others wait for their answers
                    logger.exception("%s: one of the %s could not be unloaded; the others are", self._owned.topic, self._kind.noun)
                await pause()
            if self._released and self._released[0] is states:
                self._released.popleft()


class _Lost(Exception):
    """This broker no longer leads the partition that it was loading."""


def _is_empty(partition: Partition) -> bool:
    return partition.log.log_start_offset == partition.log.log_end_offset
