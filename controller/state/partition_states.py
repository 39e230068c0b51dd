"""Writes partition states for the controller: each write is a multi with a check of the controller epoch, many per
round trip.

Called by the controller's events. After a write the context equals the store. A write that the store refuses for one partition, as with
NoAuth, leaves the state of that partition unchanged, and holds up no other one.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.controller.errors import BadVersion, ControllerMoved, NodeExists, NoNode, StoreError
from ottla.controller.state.context import ControllerContext, Leadership
from ottla.controller.state.election import without_replica
from ottla.controller.store.metadata_store import (
    Check,
    Create,
    Get,
    MetadataStore,
    Multi,
    Request,
    Result,
    SetData,
    Stat,
    Write,
    data_and_stat,
)
from ottla.controller.znodes.layout import (
    CONTROLLER_EPOCH,
    PartitionState,
    decode_partition_state,
    encode_partition_state,
    partition_path,
    partition_state_path,
    partitions_path,
)
from ottla.controller.znodes.pauses import Pause, slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

FIRST_WITH_ALTER_PARTITION = "2.7-IV2"
"""With an older inter.broker.protocol.version Apache Kafka's leaders write ISRs without asking the controller."""


class NotWritten(NamedTuple):
    """The partitions whose states could not be written."""

    changed: list[TopicPartition]
    """Another client had changed the state, which was read again instead."""
    refused: dict[TopicPartition, StoreError]
    """The store refused the write, and why. The state stays as it was."""


class PartitionStates:
    """Reads and writes under the epoch of `context`."""

    def __init__(
        self, store: MetadataStore, context: ControllerContext, pause: Pause, on_refused: Callable[[], None], *, leaders_write: bool
    ) -> None:
        """`on_refused` is to be called when the store refused some writes while others were made, so that they are tried again.
        `leaders_write`: leaders may write ISRs to the store themselves and report it seconds later (`FIRST_WITH_ALTER_PARTITION`)."""
        self._store = store
        self._context = context
        self._pause = pause
        self._leaders_write = leaders_write
        self.on_refused = on_refused
        self._refused: dict[TopicPartition, str] = {}
        """Why the store refused the last write of a state. Each reason is logged once: leaders propose their ISRs again and again."""

    async def write(self, writes: Sequence[Write]) -> list[Result | StoreError]:
        """Carry out each write if this controller is still the active one. Returns the outcomes of the writes.

        Raises ControllerMoved if it is not; then some of the first writes may have been made, under the old epoch.
        """
        check = Check(CONTROLLER_EPOCH, self._context.epoch_version)
        requests: list[Request] = []
        for some in slices(writes):
            requests += [Multi((check, write)) for write in some]
            await self._pause()
        outcomes: list[Result | StoreError] = []
        for answered in slices(await self._store.pipeline(requests)):
            for outcome in answered:
                if isinstance(outcome, StoreError):
                    if outcome.index == 0 and outcome.path == CONTROLLER_EPOCH:
                        raise ControllerMoved(f"another controller was elected after epoch {self._context.epoch}")
                    outcomes.append(outcome)
                else:
                    assert isinstance(outcome, list)
                    outcomes.append(outcome[1])
            await self._pause()
        return outcomes

    async def write_or_raise(self, writes: Sequence[Write], *, ignoring: tuple[type[StoreError], ...] = ()) -> None:
        """Like `write`, but raises the first error whose type is not in `ignoring`."""
        for outcome in await self.write(writes):
            if isinstance(outcome, StoreError) and not isinstance(outcome, ignoring):
                raise outcome

    async def create(self, states: Mapping[TopicPartition, PartitionState]) -> list[TopicPartition]:
        """Write the first states of new partitions and add them to the context; returns those that were created now.

        A partition has a state already if a controller died between its write and its requests; that state is read
        instead.
        """
        parents: list[Write] = [Create(partitions_path(topic)) for topic in dict.fromkeys(partition.topic for partition in states)]
        writes: list[Write] = []
        for some in slices(states.items()):
            parents += [Create(partition_path(partition)) for partition, _ in some]
            writes += [Create(partition_state_path(partition), encode_partition_state(state)) for partition, state in some]
            await self._pause()
        await self.write(parents)  # without a parent the state itself is refused
        created, existing = [], []
        refused: dict[TopicPartition, StoreError] = {}
        for answered in slices(zip(states.items(), await self.write(writes), strict=True)):
            for (partition, state), outcome in answered:
                if isinstance(outcome, NodeExists):
                    existing.append(partition)
                elif isinstance(outcome, StoreError):
                    refused[partition] = outcome
                else:
                    self._put(partition, Leadership(state, 0))
                    created.append(partition)
            await self._pause()
        if refused:
            self._report_refused(refused)
            self.on_refused()
        await self.read(existing)
        return created + [partition for partition in existing if self._stands(partition, Leadership(states[partition], 0))]

    async def update(self, states: Mapping[TopicPartition, PartitionState]) -> NotWritten:
        """Write changed states; returns the partitions whose states were not written. The caller has refused ones tried again."""
        epoch = self._context.epoch
        new: dict[TopicPartition, PartitionState] = {}
        expected: dict[TopicPartition, int] = {}
        writes: list[Write] = []
        for some in slices(states.items()):
            for partition, old in some:
                state = new[partition] = old._replace(controller_epoch=epoch)
                version = expected[partition] = self._context.leaderships[partition].partition_epoch
                writes.append(SetData(partition_state_path(partition), encode_partition_state(state), version))
            await self._pause()
        stale = []
        refused: dict[TopicPartition, StoreError] = {}
        for answered in slices(zip(new.items(), await self.write(writes), strict=True)):
            for (partition, state), outcome in answered:
                if isinstance(outcome, BadVersion | NoNode):
                    stale.append(partition)
                elif isinstance(outcome, StoreError):
                    refused[partition] = outcome
                else:
                    assert isinstance(outcome, Stat)
                    self._put(partition, Leadership(state, outcome.version))
            await self._pause()
        if refused:
            self._report_refused(refused)
        await self.read(stale)
        changed: list[TopicPartition] = []
        for partition in stale:
            if self._stands(partition, Leadership(new[partition], expected[partition] + 1)):
                self._context.unsent.add(partition)
            else:
                changed.append(partition)
        return NotWritten(changed, refused)

    def _put(self, partition: TopicPartition, written: Leadership) -> None:
        self._context.leaderships[partition] = written
        self._context.unsent.add(partition)
        self._refused.pop(partition, None)

    def _report_refused(self, refused: Mapping[TopicPartition, StoreError]) -> None:
        reasons = {partition: str(error) for partition, error in refused.items()}
        new = [partition for partition, reason in reasons.items() if self._refused.get(partition) != reason]
        if new:
            logger.error(
                "%d partitions, as %s, stay as they are for now, because their states cannot be written: %s",
                len(new), new[0], reasons[new[0]],
            )  # fmt: skip
        known = {partition: reason for partition, reason in self._refused.items() if self._context.assignment(partition) is not None}
        self._refused = {**known, **reasons}

    def _stands(self, partition: TopicPartition, written: Leadership) -> bool:
        """Whether the state that was read is the one that was to be written: the write was made, its reply lost, and it
        was sent again.

        The state contains this controller's epoch, so no other client wrote it.
        """
        return self._context.leaderships.get(partition) == written

    async def remove_from_isr(self, replica: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StoreError]:
        """Remove a replica that is gone from the ISRs that contain it. Returns the partitions for which the store refused that."""
        remaining = list(partitions)
        refused: dict[TopicPartition, StoreError] = {}
        await self.refresh(remaining)
        while remaining:
            states = {}
            for some in slices(remaining):
                for partition in some:
                    leadership = self._context.leaderships.get(partition)
                    state = None if leadership is None else without_replica(leadership.state, replica)
                    if state is not None:
                        states[partition] = state
                await self._pause()
            if not states:
                break
            remaining, refused_now = await self.update(states)
            refused.update(refused_now)
        if refused:
            self.on_refused()
        return refused

    async def refresh(self, partitions: Sequence[TopicPartition]) -> None:
        """Read states that leaders may have changed, before a decision depends on an ISR. A leader that died no longer
        reports its changes."""
        if self._leaders_write:
            await self.read(partitions)

    async def read(self, partitions: Iterable[TopicPartition]) -> None:
        """Read the partitions' states from the store into the context. A partition is removed from the context if it has
        no state, or one that cannot be decoded. Equal states become one object, because most of many partitions have the
        same replicas and epochs as some other partition."""
        wanted: list[TopicPartition] = []
        requests: list[Get] = []
        for some in slices(partitions):
            wanted += some
            requests += [Get(partition_state_path(partition)) for partition in some]
            await self._pause()
        outcomes = await self._store.pipeline(requests) if requests else []
        decoded: dict[bytes | None, PartitionState] = {}
        for answered in slices(zip(wanted, requests, outcomes, strict=True)):
            for partition, request, outcome in answered:
                if isinstance(outcome, NoNode):
                    self._context.leaderships.pop(partition, None)
                else:
                    data, stat = data_and_stat(outcome)
                    state = decoded.get(data)
                    if state is None:
                        try:
                            state = decoded[data] = decode_partition_state(request.path, data)
                        except MalformedZNode as error:
                            logger.error("%s has no leader as long as its state cannot be read: %s", partition, error)
                            self._context.leaderships.pop(partition, None)
                            continue
                    self._context.leaderships[partition] = Leadership(state, stat.version)
            await self._pause()
