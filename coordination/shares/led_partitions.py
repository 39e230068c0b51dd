"""Keeps the share partitions of the partitions that this broker leads. Kafka's SharePartitionManager, without its requests.

A share partition is loaded from its coordinator for the first fetch of its group, and kept while the group has sessions here. Afterwards
administrators may move the group, or delete it. So only a start is kept that the coordinator does not have, or a change that is on its way.
The next fetch reads the state first. The state machine (`partition`) decides; here its effects are carried out.

Requests wait in `waiters`, which are notified after each change by which more records can be acquired, and when the log has more. They do
not wait for the log themselves: with a hundred members each new batch would have all of them look at all their partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from ottla.config.share_offset_reset import BY_DURATION, EARLIEST, duration_ms
from ottla.coordination.partitions.runner import EffectRunner
from ottla.coordination.shares.effects import Effect, Store
from ottla.coordination.shares.partition import MalformedState, SharePartition
from ottla.coordination.shares.record_states import Acknowledgement, Acquired, AcquireMode
from ottla.coordination.shares.sessions import Place
from ottla.coordination.shares.settings import ShareSettings
from ottla.coordination.shares.state.coordinator import StateResult, StateWrite
from ottla.coordination.shares.state.stored_state import NO_OFFSET, SharePartitionKey
from ottla.coordination.shares.state_access import StateAccess
from ottla.coordination.shares.state_questions import ReadState, WriteState
from ottla.pauses import begin
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.errors import ReplicationError
from ottla.replication.leader.partition import Partition
from ottla.replication.ports.waiters import Waiters
from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel
from ottla.storage.disk.clock import Clock, elapsed_ms
from ottla.storage.errors import StorageError
from ottla.storage.log.context import LimitedLines
from ottla.storage.log.lookups import offset_for_timestamp
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.cold_lookups import ColdRead
from ottla.storage.segment.record_search import FoundRecords

MOST_ROUNDS: Final = 100
"""Waits for cold pages of one search, which the page cache may lose again. After so many the search waits for the disk itself."""


async def initial_offset(log: PartitionLog, reset: str, now_ms: int) -> int:
    """The start of a new share partition: `latest` begins at the high watermark. Raises StorageError, ValueError.

    A search by time waits for threads that read cold pages and search large batches, as that of ListOffsets does.
    """
    if reset == EARLIEST:
        return log.log_start_offset
    if reset.startswith(BY_DURATION):
        timestamp_ms = max(0, now_ms - duration_ms(reset.removeprefix(BY_DURATION)))
        searched: FoundRecords = {}
        for left in count(MOST_ROUNDS, -1):
            try:
                found = offset_for_timestamp(log, timestamp_ms, left <= 0, searched)
                break
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(None, cold.warm)
        if found is not None and found.offset < log.high_watermark:
            return found.offset
    return log.high_watermark


logger = logging.getLogger(__name__)

Key = TypeVar("Key")
Then = Callable[[ErrorCode], object]
Opened = Callable[[ErrorCode, "LedPartition"], object]

ERRORS: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The errors of the coordinator that members get as another one."""

KNOWN_TO_MEMBERS: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""All others are UNKNOWN_SERVER_ERROR for members."""

FENCED: Final = frozenset(
    {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""Errors of a write after which the state has to be read again: others have changed it."""


class News:
    """Waits for more records in the log of a partition, for all fetches of a share partition. Implements `Waiter`."""

    __slots__ = ("_wake", "completed")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.completed = False
        """Whether the share partition is kept no more."""
        self._wake = wake

    def try_complete(self) -> bool:
        """See Waiter. It goes on waiting."""
        self._wake()
        return self.completed


class LedPartition:
    """A share partition of a partition that this broker leads. `machine` is None while it is loaded."""

    __slots__ = (
        "has_own_start",
        "is_current",
        "is_dead",
        "key",
        "leader_epoch",
        "loading",
        "machine",
        "news",
        "partition",
        "state_epoch",
        "timers",
        "waiters",
    )

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state_epoch = 0
        self.machine: SharePartition | None = None
        self.has_own_start = False
        """Whether this broker has decided where it begins, and could store nothing since then: the coordinator has no start."""
        self.is_current = False
        """Whether it is loaded, and its group has had sessions since then."""
        self.loading: list[Opened] = []
        """Called when it is current, or cannot be."""
        self.waiters = Waiters()
        """The fetches that wait until more records can be acquired."""
        self.news: News | None = None
        self.timers: dict[Hashable, TimerTask] = {}
        self.is_dead = False
        """Whether it is kept no more."""


class LedPartitions:
    """See the module. Implements `coordination.runner.Machines`."""

    def __init__(self, settings: ShareSettings, access: StateAccess, timing_wheel: TimingWheel, clock: Clock) -> None:
        self.settings = settings
        self._access = access
        self._clock = clock
        self._refusals = LimitedLines(clock, logger.warning, "%d more share partitions could not be loaded or stored, without lines")
        self._runner: EffectRunner[LedPartition, Store] = EffectRunner(self, timing_wheel)
        self._led: dict[SharePartitionKey, LedPartition] = {}
        self._by_partition: dict[TopicPartition, dict[LedPartition, None]] = {}
        """Ordered sets, as in `_by_group`: a simulation visits them in the same order each time."""
        self._by_group: dict[str, dict[LedPartition, None]] = {}

    # -- life ----------------------------------------------------------------------------------------------------------------

    def find(self, key: SharePartitionKey) -> LedPartition | None:
        """The share partition, if it is loaded."""
        led = self._led.get(key)
        return None if led is None or led.machine is None else led

    def among(self, group_id: str, places: Collection[Place]) -> list[LedPartition]:
        """The share partitions of a group that are loaded, and are among these places. Members may name very many that do not exist."""
        of_group = self._by_group.get(group_id, {})
        if len(of_group) < len(places):
            return [led for led in of_group if led.machine is not None and led.key[1:] in places]
        found = [self.find(SharePartitionKey(group_id, *place)) for place in places]
        return [led for led in found if led is not None]

    def open(self, key: SharePartitionKey, partition: Partition, then: Opened) -> None:
        """Load the share partition, if it is not loaded or not current, and call `then`, maybe at once."""
        led = self._led.get(key)
        if led is None:
            led = self._led[key] = LedPartition(key, partition)
            self._by_partition.setdefault(partition.topic_partition, {})[led] = None
            self._by_group.setdefault(key.group_id, {})[led] = None
        if led.is_current:
            then(ErrorCode.NONE, led)
            return
        led.loading.append(then)
        if len(led.loading) == 1:
            self._access.ask(ReadState(key, led.leader_epoch), partial(self._on_read, led))

    def on_group_idle(self, group_id: str) -> None:
        """The last session of a group has ended: others may move it from now on, and there may never be another."""
        for led in list(self._by_group.get(group_id, ())):
            led.is_current = False
            if led.loading or _is_spare(led):  # what is read may be old when it arrives
                self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_leadership_change(self, partition: Partition) -> None:
        """A partition of this broker has a new leader or leader epoch, or is no longer hosted here."""
        for led in list(self._by_partition.get(partition.topic_partition, ())):
            if not partition.is_leader or partition.leader_epoch != led.leader_epoch or led.partition is not partition:
                self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _on_read(self, led: LedPartition, result: StateResult) -> None:
        if led.is_dead:
            return
        if result.error:
            self._refusals.add("share partition %s cannot be loaded (%s): %s", led.key, result.error.name, result.message)
            self._drop(led, _for_members(result.error))
            return
        if led.machine is not None:
            self._on_compared(led, result)
            return
        begin(self._load(led, result))

    async def _load(self, led: LedPartition, result: StateResult) -> None:
        """Begin with the state of the coordinator."""
        group_id = led.key.group_id
        try:
            start = result.start_offset
            led.has_own_start = start == NO_OFFSET
            if led.has_own_start:
                start = await initial_offset(led.partition.log, self.settings.offset_reset(group_id), self._clock.now_ms())
            machine = SharePartition(start, result.batches, self.settings.rules_of(group_id))
        except (MalformedState, StorageError, ReplicationError, ValueError) as error:
            logger.error("share partition %s cannot be loaded: %s", led.key, error)
            self._drop(led, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        except Exception:  # a fault of this broker: the members would wait forever
            logger.exception("share partition %s cannot be loaded", led.key)
            self._drop(led, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if led.is_dead:
            return
        machine.on_log_start(led.partition.log.log_start_offset)
        led.machine = machine
        led.state_epoch = result.state_epoch
        led.is_current = True
        led.news = News(partial(self._wake, led))
        led.partition.waiters.add(led.news)
        led.partition.stable_waiters.add(led.news)
        self._call_loading(led, ErrorCode.NONE)

    def _on_compared(self, led: LedPartition, result: StateResult) -> None:
        """The coordinator has told its state of a share partition that was loaded before. It replaces what is known here: the group may
        have been deleted and made again, with the same epochs."""
        is_same = result.state_epoch == led.state_epoch
        if is_same and (_machine(led).is_storing or (led.has_own_start and result.start_offset == NO_OFFSET)):
            led.is_current = True
            self._call_loading(led, ErrorCode.NONE)
            return
        waiting, led.loading = led.loading, []
        self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for then in waiting:
            self.open(led.key, led.partition, then)

    def _drop(self, led: LedPartition, error: ErrorCode) -> None:
        """Keep a share partition no more. Its waiting requests look it up again."""
        if led.is_dead:
            return
        led.is_dead = True
        del self._led[led.key]
        _discard(self._by_partition, led.partition.topic_partition, led)
        _discard(self._by_group, led.key.group_id, led)
        for timer in led.timers.values():
            timer.cancel()
        led.timers.clear()
        if led.news is not None:
            led.news.completed = True
            led.partition.waiters.drop(led.news)
            led.partition.stable_waiters.drop(led.news)
        self._call_loading(led, error)
        led.waiters.notify()

    def _call_loading(self, led: LedPartition, error: ErrorCode) -> None:
        loading, led.loading = led.loading, []
        for then in loading:
            try:
                then(error, led)
            except Exception:  # a fault of this broker: the others would wait forever
                logger.exception("share partition %s: a request that waited for it failed; the others go on", led.key)

    def __len__(self) -> int:
        return len(self._led)

    def __iter__(self) -> Iterator[LedPartition]:
        return iter(self._led.values())

    # -- events --------------------------------------------------------------------------------------------------------------

    def next_fetch_offset(self, led: LedPartition) -> int | None:
        """See SharePartition. Follows the start of the log, and the configuration of the group."""
        machine = _machine(led)
        machine.rules = self.settings.rules_of(led.key.group_id)
        log_start_offset = led.partition.log.log_start_offset
        if log_start_offset > machine.start_offset:
            machine.on_log_start(log_start_offset)
        return machine.next_fetch_offset()

    def acquire(
        self, led: LedPartition, member_id: str, offset: int, extents: Any, max_records: int, batch_size: int, mode: AcquireMode
    ) -> list[Acquired]:
        """See SharePartition."""
        acquired, effects = _machine(led).acquire(member_id, offset, extents, max_records, batch_size, mode, elapsed_ms(self._clock))
        self._runner.run(led, effects)
        return acquired

    def acknowledge(self, led: LedPartition, member_id: str, batches: Sequence[Acknowledgement], then: Then) -> None:
        """See SharePartition. `then` is called when the acknowledgement is stored."""
        self._runner.run(led, _machine(led).acknowledge(member_id, batches, then, elapsed_ms(self._clock)))

    def release(self, led: LedPartition, member_id: str, then: Then) -> None:
        """See SharePartition."""
        self._runner.run(led, _machine(led).release(member_id, then))

    def end_locks(self, group_id: str) -> int:
        """End the locks of a group now. Returns the number of its records that were locked at this broker's partitions."""
        ended = 0
        for led in list(self._by_group.get(group_id, ())):
            if led.machine is not None:
                before = led.machine.ended_locks
                self._runner.run(led, led.machine.end_locks(elapsed_ms(self._clock)))
                ended += led.machine.ended_locks - before
                self._wake(led)
        return ended

    # -- effects -------------------------------------------------------------------------------------------------------------

    def name_of(self, subject: LedPartition) -> str:
        """Names the share partition, for the log."""
        return f"share partition {subject.key}"

    def on_timer(self, subject: LedPartition, key: object) -> list[Effect]:
        """Locks may end."""
        effects = _machine(subject).on_timer(elapsed_ms(self._clock))
        self._wake(subject)
        return effects

    def carry_out(self, subject: LedPartition, effect: Store) -> None:
        """Let the coordinator store a change."""
        write = StateWrite(subject.state_epoch, subject.leader_epoch, effect.start_offset, effect.complete_count, effect.batches)
        self._access.ask(WriteState(subject.key, write), partial(self._on_written, subject))

    def _on_written(self, led: LedPartition, result: StateResult) -> None:
        error = result.error
        if error:
            self._refusals.add("share partition %s cannot be stored (%s): %s", led.key, error.name, result.message)
        else:
            led.has_own_start = False
        self._runner.run(led, _machine(led).on_stored(_for_members(error), elapsed_ms(self._clock)))
        if error in FENCED:
            self._drop(led, _for_members(error))
        elif _is_spare(led) and not led.is_current and not led.loading:
            self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self._wake(led)

    def _wake(self, led: LedPartition) -> None:
        """Let fetches that wait try again while there is something to acquire: with a hundred members, few of them find something."""
        if led.waiters.waiting:
            led.waiters.notify_while(partial(self._has_records, led))

    def _has_records(self, led: LedPartition) -> bool:
        if led.is_dead:
            return True  # they look it up again
        offset = self.next_fetch_offset(led)
        return offset is not None and offset < self.end_offset(led)

    def end_offset(self, led: LedPartition) -> int:
        """The offset below which members may have records, by the isolation level of the group."""
        log = led.partition.log
        return log.last_stable_offset if self.settings.reads_committed(led.key.group_id) else log.high_watermark


def _machine(led: LedPartition) -> SharePartition:
    assert led.machine is not None  # it is loaded
    return led.machine


def _is_spare(led: LedPartition) -> bool:
    """Whether the coordinator has all that is to be known of it."""
    return led.machine is not None and not led.machine.is_storing and not led.has_own_start


def _discard(index: dict[Key, dict[LedPartition, None]], key: Key, led: LedPartition) -> None:
    index[key].pop(led, None)
    if not index[key]:
        del index[key]


def _for_members(error: ErrorCode) -> ErrorCode:
    error = ERRORS.get(error, error)
    return error if error in KNOWN_TO_MEMBERS else ErrorCode.UNKNOWN_SERVER_ERROR
