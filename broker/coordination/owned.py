"""Tracks the states that this broker coordinates: those whose partition of an internal topic it leads.

A state is a group or a transactional id, which the records of the topic describe. Its partition is Kafka's `abs(hashCode) % partitions` of
its key, so every broker and client can determine the coordinator. `elections` adds and removes partitions; all other modules look up states
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

from broker.coordination.large_table import LargeTable
from controller.znodes.java_order import java_hash
from protocol.errors import ErrorCode
from replication.ports.cluster import MetadataCache

State = TypeVar("State")


class OwnedPartition(Generic[State]):
    """A partition that this broker leads, and its states by key. The states are served when the partition is loaded."""

    __slots__ = ("_has_failed", "_once_loaded", "index", "is_loading", "leader_epoch", "loaded_end_offset", "states")

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        """Also the epoch of the coordinator, which a newer coordinator of the same partition exceeds."""
        self.is_loading = True
        self._has_failed = False
        self.loaded_end_offset = 0
        """The end of the loaded log; 0 when all in-sync replicas have it. Records above the high watermark may still be lost."""
        self.states: LargeTable[str, State] = LargeTable()
        self._once_loaded: list[Callable[[], None]] = []

    def once_loaded(self, then: Callable[[], None]) -> None:
        """Call `then` when the states are served: now, or at the end of the load. It is never called if the load fails, or the partition is
        lost before."""
        if not self.is_loading:
            then()
        elif not self._has_failed:
            self._once_loaded.append(then)

    def fail(self) -> None:
        """Drop the states, and answer as during a load: a state that was not loaded may exist."""
        self._has_failed = True
        self._once_loaded.clear()
        self.states = LargeTable()

    def load_again(self) -> None:
        """The log is about to be read again from its start."""
        self._has_failed = False

    def end_loading(self) -> None:
        """Serve the states from now on."""
        self.is_loading = False
        waiting, self._once_loaded = self._once_loaded, []
        for then in waiting:
            then()


class OwnedStates(Generic[State]):
    """See the module. Iterates over all states, also while others change them (`LargeTable.each`)."""

    __slots__ = ("_cluster", "_configured_partitions", "_partition_count", "is_active", "partitions", "topic")

    def __init__(self, topic: str, cluster: MetadataCache, configured_partitions: int) -> None:
        self.topic = topic
        self.partitions: dict[int, OwnedPartition[State]] = {}
        self.is_active = False
        self._cluster = cluster
        self._configured_partitions = configured_partitions
        self._partition_count: int | None = None

    @property
    def partition_count(self) -> int:
        """Number of partitions when the topic was first seen: partitions that are added later would change the partitions of the states."""
        image = self._cluster.topics.get(self.topic)
        if image is None:
            self._partition_count = None
            return self._configured_partitions
        if self._partition_count is None:
            self._partition_count = len(image.partitions)
        return self._partition_count

    def partition_for(self, key: str) -> int:
        """The partition of the topic that holds the state."""
        return absolute_hash(key) % self.partition_count

    def check(self, key: str) -> ErrorCode:
        """Whether this broker coordinates the state."""
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        owned = self.partitions.get(self.partition_for(key))
        if owned is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if owned.is_loading else ErrorCode.NONE

    def find(self, key: str) -> tuple[ErrorCode, State | None]:
        """The answers of `check` and `get` in one step, because heartbeats and commits are frequent."""
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        owned = self.partitions.get(self.partition_for(key))
        if owned is None:
            return ErrorCode.NOT_COORDINATOR, None
        if owned.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        return ErrorCode.NONE, owned.states.get(key)

    def get(self, key: str) -> State | None:
        """The state, if it is coordinated here."""
        owned = self.partitions.get(self.partition_for(key))
        return None if owned is None else owned.states.get(key)

    def owner_of(self, key: str, state: State) -> OwnedPartition[State] | None:
        """The partition of this broker that has exactly this state under the key."""
        owned = self.partitions.get(self.partition_for(key))
        return owned if owned is not None and owned.states.get(key) is state else None

    def add(self, key: str, state: State) -> None:
        """Keep a new state, whose key `check` allowed."""
        self.partitions[self.partition_for(key)].states[key] = state

    def forget(self, key: str, state: State) -> bool:
        """Drop a state; False if it was already dropped."""
        owned = self.partitions.get(self.partition_for(key))
        if owned is None or owned.states.get(key) is not state:
            return False
        del owned.states[key]
        return True

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded."""
        return any(owned.is_loading for owned in self.partitions.values())

    def __iter__(self) -> Iterator[State]:
        for owned in list(self.partitions.values()):
            yield from owned.states.each()


@lru_cache(maxsize=4096)
def absolute_hash(text: str) -> int:
    """Kafka's Utils.abs of String.hashCode: the most negative hash becomes 0."""
    value = java_hash(text)
    if value < 1 << 31:
        return value
    return (1 << 32) - value if value > 1 << 31 else 0
