"""Handles AlterPartition: leaders propose new ISRs; the controller checks them, writes them and sends them to all
brokers."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from ottla.controller.errors import (
    BrokerIdNotRegistered,
    ControllerError,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidAdminRequest,
    InvalidUpdateVersion,
    NotController,
    StaleBrokerEpoch,
    StoreError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.controller.events.reassignment import Reassignments
from ottla.controller.state.context import Leadership
from ottla.controller.state.core import ControllerCore
from ottla.controller.state.partition_states import NotWritten
from ottla.controller.state.request_batch import EVERY_BROKER
from ottla.controller.znodes.layout import RECOVERED, RECOVERING, PartitionState
from ottla.controller.znodes.pauses import slices
from ottla.protocol.topic_partition import TopicPartition
from ottla.protocol.uuid import ZERO_UUID


class IsrChange(NamedTuple):
    """The proposal of a partition's leader."""

    leader_epoch: int
    new_isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = RECOVERED
    topic_id: bytes = ZERO_UUID
    """Id of the topic; zero when the proposal has only its name."""


IsrResult: TypeAlias = Leadership | ControllerError | StoreError


class AlterPartitionEvents:
    """The controller's part of AlterPartition."""

    def __init__(self, core: ControllerCore, reassignments: Reassignments) -> None:
        self._core = core
        self._context = core.context
        self._reassignments = reassignments

    async def alter(
        self, broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, IsrResult]:
        """The partitions' states afterwards, or the errors of refused proposals. Raises BrokerIdNotRegistered,
        StaleBrokerEpoch."""
        broker = self._context.brokers.get(broker_id)
        if broker is None:
            raise BrokerIdNotRegistered(f"broker {broker_id} is not registered")
        if broker_epoch != broker.epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}")
        results: dict[TopicPartition, IsrResult] = {}
        states: dict[TopicPartition, PartitionState] = {}
        for some in slices(changes.items()):
            for partition, change in some:
                judged = self._judge(partition, change)
                if isinstance(judged, PartitionState):
                    states[partition] = judged
                else:
                    results[partition] = judged
            await self._core.pause()
        not_written = await self._core.states.update(states) if states else NotWritten([], {})
        self._context.unsent.difference_update(states)  # the leader gets the new state with the answer
        stale, refused = set(not_written.changed), not_written.refused
        batch = self._core.batch()
        for written in slices(states):
            for partition in written:
                if partition in stale:
                    results[partition] = InvalidUpdateVersion(f"{partition} was changed by another controller")
                elif partition in refused:
                    results[partition] = refused[partition]
                else:
                    results[partition] = self._context.leaderships[partition]
                    batch.update_metadata(EVERY_BROKER, (partition,))
            await self._core.pause()
        await batch.send()
        self._reassignments.on_isr_changed(states)
        return results

    def _judge(self, partition: TopicPartition, change: IsrChange) -> PartitionState | IsrResult:
        """The state to write, or the answer: the current state when it equals the proposal, otherwise the error."""
        # The proposal has waited in the queue: another topic may have the name by now.
        if change.topic_id not in {ZERO_UUID, self._context.topic_id(partition.topic)}:
            return UnknownTopicId(f"{partition} belongs to another topic than the one that was meant")
        leadership = self._context.leaderships.get(partition)
        if leadership is None or self._context.is_being_deleted(partition.topic):
            return UnknownTopicOrPartition(f"{partition} does not exist")
        state = leadership.state
        if change.partition_epoch > leadership.partition_epoch or change.leader_epoch > state.leader_epoch:
            return NotController(f"{partition} has leader epoch {state.leader_epoch} and partition epoch {leadership.partition_epoch} here")
        if change.leader_epoch < state.leader_epoch:
            return FencedLeaderEpoch(f"{partition} has leader epoch {state.leader_epoch}, not {change.leader_epoch}")
        if change.leader_recovery_state not in {RECOVERED, RECOVERING}:
            return InvalidAdminRequest(f"{partition} cannot have leader recovery state {change.leader_recovery_state}; there are 0 and 1")
        if state.isr == change.new_isr and state.leader_recovery_state == change.leader_recovery_state:
            return leadership  # sent again because the answer was lost
        if change.partition_epoch != leadership.partition_epoch:
            return InvalidUpdateVersion(f"{partition} has partition epoch {leadership.partition_epoch}, not {change.partition_epoch}")
        if change.leader_recovery_state == RECOVERING and len(change.new_isr) > 1:
            return InvalidAdminRequest(f"{partition} cannot have more than one replica in sync while its leader recovers")
        if change.leader_recovery_state == RECOVERING and state.leader_recovery_state == RECOVERED:
            return InvalidAdminRequest(f"{partition} has recovered; its leader cannot begin to recover again")
        # Only those that join: a leader in controlled shutdown, which does not count as live, must be able to add its successor.
        ineligible = [each for each in change.new_isr if each not in state.isr and not self._context.is_live(each)]
        if ineligible:
            return IneligibleReplica(f"replicas {ineligible} of {partition} are not alive")
        replicas = self._context.replicas(partition)
        unassigned = [each for each in change.new_isr if each not in replicas]
        if unassigned:
            return InvalidAdminRequest(f"{partition} has no replica on brokers {unassigned}")
        return state._replace(isr=change.new_isr, leader_recovery_state=change.leader_recovery_state)
