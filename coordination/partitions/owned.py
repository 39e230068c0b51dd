"""Tracks the states that this broker coordinates: those whose partition of an internal topic it leads.

A state is what the topic's records are about: a group, a transactional id. Its partition is Kafka's `abs(hashCode) % partitions` of its
key, so any broker and client can determine the coordinator. `elections` adds and removes partitions; all others look states up here.

As in Apache Kafka, a broker computes with the number of partitions that the topic had when the broker first saw it. With partitions that
are added later, a group would have two coordinators until all brokers know the new number. A topic that was deleted and created again is
another topic. Partitions that have never had a leader count, too; only the metadata store has them (`stored_partitions`). If a broker added
partitions at a client's request, the store also has the former number, which counts as long as the topic exists.

Brokers of Apache Kafka add partitions without that. After a restart most keys have another partition than their stored states. Such a
displaced state is found in the partition that it was loaded from, and its records stay there, provided that this broker leads both
partitions, and the partition of the key has no state of its own. Until all partitions are loaded, a key without a state may have a
displaced one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from ottla.controller.znodes.java_order import java_hash
from ottla.large_table import LargeTable
from ottla.protocol.errors import ErrorCode
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.ports.cluster import MetadataCache, TopicImage

State = TypeVar("State")


@final
class OwnedPartition:
    """A partition that this broker leads, and its states by key. The states are served when the partition is loaded."""

    __slots__ = ("_before_served", "_has_failed", "_once_loaded", "index", "is_loading", "leader_epoch", "loaded_end_offset", "states")

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        """Also the epoch of the coordinator, which a newer coordinator of the same partition exceeds."""
        self.is_loading = True
        self._has_failed = False
        self.loaded_end_offset = 0
        """The end of the loaded log; 0 when all in-sync replicas have it. Records above the high watermark may still be lost."""
        self.states: LargeTable[str, Any] = LargeTable()
        self._once_loaded: list[Callable[[], None]] = []
        self._before_served: list[Callable[[Iterator[Any]], Iterator[None]]] = []

    def once_loaded(self, then: Callable[[], None]) -> None:
        """Call `then` when the states are served: now, or at the end of the load. It is never called if the load fails, or the partition is
        lost before."""
        if not self.is_loading:
            then()
        elif not self._has_failed:
            self._once_loaded.append(then)

    def before_served(self, steps: Callable[[Iterator[Any]], Iterator[None]]) -> None:
        """Carry out `steps` on the states that are being loaded, before they are served. A load that is repeated carries them out again."""
        self._before_served.append(steps)

    def catch_up(self) -> Iterator[None]:
        """Carry out what had to wait for the loaded states; more may be added meanwhile."""
        for steps in self._before_served:
            yield from steps(self.states.each())

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
        self._before_served.clear()
        waiting, self._once_loaded = self._once_loaded, []
        for then in waiting:
            then()


class StatesByKey:
    """The states of a coordinator, of any type. A compiled class cannot be generic, so `OwnedStates` adds the type."""

    __slots__ = (
        "_cluster",
        "_code_without_key",
        "_configured_partitions",
        "_displaced",
        "_fixed_count",
        "_image",
        "_partition_count",
        "_stored_count",
        "is_active",
        "on_growth",
        "on_other_topic",
        "partitions",
        "topic",
    )

    def __init__(
        self, topic: str, cluster: MetadataCache, configured_partitions: int, code_without_key: ErrorCode = ErrorCode.NONE
    ) -> None:
        """`code_without_key` answers requests with an empty key. With NONE it is a key like any other."""
        self.topic = topic
        self.partitions: dict[int, OwnedPartition] = {}
        self.is_active = False
        self._cluster = cluster
        self._code_without_key = code_without_key
        self._configured_partitions = configured_partitions
        self._displaced: dict[str, int] = {}
        """The partitions that hold displaced states, by key; also of those that are deleted, because their tombstones follow later."""
        self._image: TopicImage | None = None
        """The metadata at the last check."""
        self._partition_count = configured_partitions
        self._stored_count = 0
        """The number of partitions in the metadata store, until the metadata shows the topic."""
        self._fixed_count = 0
        """The number that counts whatever is added; 0 if there is none."""
        self.on_other_topic: Callable[[], None] = lambda: None
        """Called when the metadata shows another topic of the name. `learn` is to be called with its number of partitions."""
        self.on_growth: Callable[[], None] = lambda: None
        """Called when the metadata shows more partitions than before. They do not count."""

    def learn(self, stored: int, *, is_fixed: bool = False) -> None:
        """The metadata store has this number of partitions; 0 if it does not have the topic. If it `is_fixed`, others do not count."""
        self._fixed_count = stored if is_fixed else 0
        if self._image is None:
            self._stored_count = stored
            self._partition_count = stored or self._configured_partitions
        elif stored:
            self._partition_count = self._fixed_count or max(stored, _partitions_of(self._image))

    @property
    def partition_count(self) -> int:
        """Number of partitions that decides about coordinators; the configured one while there is no topic."""
        return self._count_partitions()

    def _count_partitions(self) -> int:
        image = self._cluster.topics.get(self.topic)
        if image is not self._image:
            self._look_at(image)
        return self._partition_count

    def _look_at(self, image: TopicImage | None) -> None:
        """The metadata of the topic changed: count its partitions if it is another topic than before."""
        former, self._image = self._image, image
        stored, self._stored_count = self._stored_count, 0
        if image is None:
            self._partition_count = self._configured_partitions
            self._fixed_count = 0
            return
        count = _partitions_of(image)  # no topic ever has fewer than before, also where old protocol versions know no ids
        if former is None or count < _partitions_of(former) or _has_another_id(former, image):
            if former is not None:
                self._fixed_count = 0
            self._partition_count = self._fixed_count or max(count, stored)
            self.on_other_topic()
        elif count > max(self._partition_count, _partitions_of(former)):
            self.on_growth()

    def partition_for(self, key: str) -> int:
        """The partition of the topic that holds the state."""
        if self._displaced:
            owned = self._owner(key)
            if owned is not None:
                return owned.index
        return absolute_hash(key) % self._count_partitions()

    def _owner(self, key: str) -> OwnedPartition | None:
        owned: OwnedPartition | None = self.partitions.get(absolute_hash(key) % self._count_partitions())
        if self._displaced and owned is not None and owned.states.get(key) is None:
            at = self._displaced.get(key)
            if at is not None:
                return self.partitions.get(at)
        return owned

    def on_loaded(self, key: str, index: int) -> bool:
        """Note that a state was loaded from a partition. True if it is displaced."""
        is_displaced = absolute_hash(key) % self._count_partitions() != index
        if is_displaced:
            self._displaced[key] = index
        return is_displaced

    def on_unloaded(self, index: int) -> None:
        """Forget the displaced states of a partition."""
        if self._displaced:
            self._displaced = {key: at for key, at in self._displaced.items() if at != index}

    def _may_be_displaced(self, owned: OwnedPartition, key: str) -> bool:
        """Whether a partition that is being loaded may have the state.

        A topic with more partitions than are configured may have grown. So has one with a displaced state, even if the configured number
        was raised afterwards.
        """
        if not self._displaced and self._count_partitions() <= self._configured_partitions:
            return False
        return self.is_loading and owned.states.get(key) is None

    def check(self, key: str) -> ErrorCode:
        """Whether this broker coordinates the state."""
        if not key and self._code_without_key:
            return self._code_without_key
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        owned = self._owner(key)
        if owned is None:
            return ErrorCode.NOT_COORDINATOR
        is_loading = owned.is_loading or self._may_be_displaced(owned, key)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE

    def find(self, key: str, may_be_empty: bool = False) -> tuple[ErrorCode, Any]:
        """The answers of `check` and `get` in one step, because heartbeats and commits are frequent. Some requests may name the empty
        key (`may_be_empty`)."""
        if not key and self._code_without_key and not may_be_empty:
            return self._code_without_key, None
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        owned = self._owner(key)
        if owned is None:
            return ErrorCode.NOT_COORDINATOR, None
        if owned.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        state = owned.states.get(key)
        if state is None and self._may_be_displaced(owned, key):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        return ErrorCode.NONE, state

    def get(self, key: str) -> Any:
        """The state, if it is coordinated here."""
        owned = self._owner(key)
        return None if owned is None else owned.states.get(key)

    def served(self, key: str) -> Any:
        """The state, if this broker answers for it now."""
        owned = self._owner(key) if self.is_active else None
        return None if owned is None or owned.is_loading else owned.states.get(key)

    def owner_of(self, key: str, state: Any) -> OwnedPartition | None:
        """The partition of this broker that has exactly this state under the key. That may be a displaced state whose key has another
        coordinator now: only this broker can finish what it has begun."""
        owned = self._owner(key)
        if owned is not None and owned.states.get(key) is state:
            return owned
        at = self._displaced.get(key) if self._displaced else None
        owned = None if at is None else self.partitions.get(at)
        return owned if owned is not None and owned.states.get(key) is state else None

    def add(self, key: str, state: Any) -> None:
        """Keep a new state, whose key `check` allowed."""
        self.partitions[self.partition_for(key)].states[key] = state

    def forget(self, key: str, state: Any) -> bool:
        """Drop a state; False if it was already dropped."""
        owned: OwnedPartition | None = self.owner_of(key, state)
        if owned is None:
            return False
        del owned.states[key]
        return True

    @property
    def is_loading(self) -> bool:
        """Whether a partition is being loaded."""
        return any(owned.is_loading for owned in self.partitions.values())

    def __iter__(self) -> Iterator[Any]:
        for owned in list(self.partitions.values()):
            if not self._displaced:
                yield from owned.states.each()
                continue
            for key, state in owned.states.keys_and_values():
                if self._owner(key) is owned:
                    yield state


class OwnedStates(StatesByKey, Generic[State]):
    """See the module. Iterates over all states, also while others change them (`LargeTable.each`)."""

    __slots__ = ()

    if TYPE_CHECKING:

        def find(self, key: str, may_be_empty: bool = False) -> tuple[ErrorCode, State | None]: ...

        def get(self, key: str) -> State | None: ...

        def served(self, key: str) -> State | None: ...

        def owner_of(self, key: str, state: State) -> OwnedPartition | None: ...

        def add(self, key: str, state: State) -> None: ...

        def forget(self, key: str, state: State) -> bool: ...

        def __iter__(self) -> Iterator[State]: ...


def _partitions_of(image: TopicImage) -> int:
    """The number of partitions; those that had no leader since they were created are not in the metadata."""
    return max(image.partitions) + 1


def _has_another_id(former: TopicImage, image: TopicImage) -> bool:
    return former.topic_id != image.topic_id and ZERO_UUID not in (former.topic_id, image.topic_id)


@lru_cache(maxsize=4096)
def absolute_hash(text: str) -> int:
    """Kafka's Utils.abs of String.hashCode: the most negative hash becomes 0."""
    value = java_hash(text)
    if value < 1 << 31:
        return value
    return (1 << 32) - value if value > 1 << 31 else 0
