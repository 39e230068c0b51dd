"""Reassigns partitions to other brokers (KIP-455). Kafka's onPartitionReassignment.

The progress of a reassignment is in the znodes alone, so that any controller can continue it: /brokers/topics/T lists
old and new replicas, and those being added and removed; the partition's state lists those in sync.

* Begin: the new list is written, replicas that a cancelled reassignment had added are stopped, and the leader epoch is
  raised. All replicas receive the state; those being added receive it twice, as new replicas may be created in any log
  directory.
* End, as soon as all target replicas are in sync: one of them is elected leader, or the epoch is raised. The removed
  replicas leave the ISR, stop and delete their logs. Only then the final list is written, because the next controller
  would continue from it.

Called by the controller's events. If partitions move together, each step is one round trip for all of them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence, Set

from ottla.controller.errors import (
    BadVersion,
    ControllerError,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoNode,
    NoReassignmentInProgress,
    SessionExpired,
    StoreError,
    UnknownTopicOrPartition,
)
from ottla.controller.state.context import Replica
from ottla.controller.state.core import ControllerCore
from ottla.controller.state.partition_elections import Refused
from ottla.controller.state.request_batch import EVERY_BROKER
from ottla.controller.store.metadata_store import Delete, Exists, Get, SetData, Write, data_and_stat
from ottla.controller.znodes.changes import decode_reassignments, encode_reassignments
from ottla.controller.znodes.layout import REASSIGN_PARTITIONS, ReplicaAssignment, TopicAssignment, decode_topic, encode_topic, topic_path
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.topic_partition import TopicPartition


class ReassignmentOrder:
    """The znode; there is at most one."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core

    async def read(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The requested reassignments; empty when there are none. A node that cannot be decoded is deleted, because no
        other client would do so."""
        (found,) = await self._core.store.pipeline([Get(REASSIGN_PARTITIONS)])
        if isinstance(found, NoNode):
            return {}
        try:
            ordered = decode_reassignments(REASSIGN_PARTITIONS, data_and_stat(found)[0])
            if ordered:
                return ordered
            logger.warning("%s is removed: it names no partition", REASSIGN_PARTITIONS)
        except MalformedZNode as error:
            logger.error("%s is removed: %s", REASSIGN_PARTITIONS, error)
        await self._core.states.write_or_raise([Delete(REASSIGN_PARTITIONS)], ignoring=(NoNode,))
        return {}

    async def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the node, and delete it when none is left. If the store refuses that it is tried again: what has led to
        it is done, or must go on."""
        done = set(partitions)
        if not done:
            return
        try:
            ordered = await self.read()
            left = {partition: target for partition, target in ordered.items() if partition not in done}
            if left == ordered:
                return
            write: Write = SetData(REASSIGN_PARTITIONS, encode_reassignments(left)) if left else Delete(REASSIGN_PARTITIONS)
            await self._core.states.write_or_raise([write], ignoring=(NoNode,))
        except SessionExpired:
            raise
        except StoreError as error:
            logger.error("%s stays as it is for now, because it cannot be written: %s", REASSIGN_PARTITIONS, error)
            self._core.states.on_refused()


logger = logging.getLogger(__name__)

AlterError = ControllerError | StoreError
"""Why a reassignment cannot begin."""

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""Target replicas by partition; None cancels a reassignment."""


class Reassignments:
    """The reassignments of the active controller."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core
        self._context = core.context
        self._order = ReassignmentOrder(core)
        self._interrupted: dict[TopicPartition, Sequence[int]] = {}
        """Partitions whose reassignment may be written, but whose replicas were not notified, because the store refused a write. A later
        event tries again (`refused_writes`). By partition, the brokers that a cancelled reassignment had added; their replicas must stop.
        """

    # Requests

    async def alter(self, targets: Targets, *, may_change_factor: bool = True) -> dict[TopicPartition, AlterError | None]:
        """AlterPartitionReassignments: begin, change or cancel reassignments; for each partition None, or the error."""
        results: dict[TopicPartition, AlterError | None] = {}
        wanted: dict[TopicPartition, ReplicaAssignment] = {}
        legal = []
        for partition, target in targets.items():
            await self._core.pause()
            try:
                if target is not None:
                    _check_list(target)
                    self._check_alive(partition, target)
                    if not may_change_factor:
                        self._check_factor(partition, target)
                assignment = self._assignment_towards(partition, target)
                legal.append(partition)
                results[partition] = None
                if self._context.assignment(partition) is None:
                    results[partition] = UnknownTopicOrPartition("The partition does not exist.")
                else:
                    wanted[partition] = assignment
            except ControllerError as error:
                results[partition] = error.with_traceback(None)
        await self._order.remove(legal)  # the latest request counts, whether it came by a znode or not
        results.update(await self._begin(wanted))
        for partition in wanted:
            if self._context.assignment(partition) is None:
                results[partition] = UnknownTopicOrPartition("The partition does not exist.")
        return results

    def _check_factor(self, partition: TopicPartition, target: Sequence[int]) -> None:
        """Raises InvalidReplicationFactor if the partition has another number of replicas, at the end of a reassignment in progress."""
        current = self._context.assignment(partition)
        if current is not None and len(current.target_replicas) != len(target):
            raise InvalidReplicationFactor(f"The replication factor is changed from {len(current.target_replicas)} to {len(target)}")

    async def on_order(self) -> None:
        """/admin/reassign_partitions, created by an old tool: begin its reassignments; it is deleted when all of them
        are done."""
        watch = self._core.watch("ZkPartitionReassignment", self.on_order)
        await self._core.store.pipeline([Exists(REASSIGN_PARTITIONS, watch)])
        ordered = await self._order.read()
        wanted, settled = {}, set()
        for partition, target in ordered.items():
            await self._core.pause()
            try:
                _check_list(target)
                assignment = self._assignment_towards(partition, target)
            except ControllerError as error:
                logger.warning("/admin/reassign_partitions: %s cannot be moved to %s: %s", partition, list(target), error)
                settled.add(partition)
                continue
            if assignment != self._context.assignment(partition):
                wanted[partition] = assignment
            elif not assignment.is_reassigning:
                settled.add(partition)  # it has ended, but the node could not be written then
        await self._order.remove(settled)
        if await self._begin(wanted):
            self._core.states.on_refused()

    async def resume(self, brokers: set[int] | None = None) -> None:
        """Continue all reassignments, or those to one of `brokers`, which have started."""
        if brokers is None:
            self._interrupted.clear()
        partitions: list[TopicPartition] = []
        for topic, assignments in self._context.assignments.items():
            if self._context.is_being_deleted(topic):
                continue
            for some in slices(assignments.items()):
                partitions += [
                    TopicPartition(topic, index)
                    for index, assignment in some
                    if assignment.is_reassigning and (brokers is None or not brokers.isdisjoint(assignment.target_replicas))
                ]
                await self._core.pause()
        if partitions:
            logger.info("continuing the reassignment of %s", ", ".join(map(str, partitions)))
            await self._continue(partitions)

    async def resume_interrupted(self) -> None:
        """Continue the reassignments whose begin the store has interrupted."""
        self._interrupted = {
            each: unneeded
            for each, unneeded in self._interrupted.items()
            if self._is_reassigning(each)
            or (unneeded and self._context.assignment(each) and not self._context.is_being_deleted(each.topic))
        }
        await self._continue(sorted(self._interrupted))

    def on_isr_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """ISRs have changed: queue the end of the reassignments whose target replicas are all in sync now."""
        complete = [each for each in partitions if self._is_reassigning(each) and self._is_complete(each)]

        async def end() -> None:
            await self._end([each for each in complete if self._is_reassigning(each) and self._is_complete(each)])

        if complete:
            self._core.put("PartitionReassignmentIsrChange", end)

    async def on_topics_deleted(self, topics: Set[str]) -> None:
        """Cancel the reassignments of topics that are to be deleted: the deletion covers old and new replicas."""
        if any(assignment.is_reassigning for topic in topics for assignment in self._context.assignments.get(topic, {}).values()):
            await self._order.remove(TopicPartition(topic, index) for topic in topics for index in self._context.assignments[topic])

    # Checks

    def _check_alive(self, partition: TopicPartition, target: Sequence[int]) -> None:
        current = self._context.assignment(partition)
        adding = (current or ReplicaAssignment(())).reassigned_to(target).adding_replicas
        if not all(map(self._context.is_live, adding)):
            live = ", ".join(map(str, sorted(self._context.live_brokers)))
            raise InvalidReplicaAssignment(
                "Replica assignment has brokers that are not alive. "
                f"Replica list: ArrayBuffer({', '.join(map(str, adding))}), live broker list: Set({live})"
            )

    def _assignment_towards(self, partition: TopicPartition, target: Sequence[int] | None) -> ReplicaAssignment:
        """Raises UnknownTopicOrPartition, NoReassignmentInProgress, InvalidReplicaAssignment."""
        current = self._context.assignment(partition)
        if target is None and (current is None or not current.is_reassigning):
            raise NoReassignmentInProgress("No partition reassignment is in progress.")
        if current is None or self._context.is_being_deleted(partition.topic):
            raise UnknownTopicOrPartition("The partition does not exist.")
        wanted = current.reassigned_to(current.origin_replicas if target is None else target)
        leadership = self._context.leaderships.get(partition)
        if leadership is not None:
            remaining = [each for each in leadership.state.isr if each in wanted.replicas]
            lives = any(self._context.is_online(each, partition) for each in leadership.state.isr)
            if not remaining or (lives and not any(self._context.is_online(each, partition) for each in remaining)):
                raise InvalidReplicaAssignment(
                    f"Unable to revert partition assignment for {partition} because it would require an unclean leader election."
                )
        return wanted

    def _is_reassigning(self, partition: TopicPartition) -> bool:
        assignment = self._context.assignment(partition)
        return assignment is not None and assignment.is_reassigning and not self._context.is_being_deleted(partition.topic)

    def _is_complete(self, partition: TopicPartition) -> bool:
        """Whether all target replicas are in sync, and one of them can lead."""
        assignment, leadership = self._context.assignment(partition), self._context.leaderships.get(partition)
        if assignment is None:
            return False
        if leadership is None or not assignment.is_reassigning:
            return True
        targets = assignment.target_replicas
        return set(targets) <= set(leadership.state.isr) and any(self._context.is_online(each, partition) for each in targets)

    # Steps

    async def _begin(self, wanted: Mapping[TopicPartition, ReplicaAssignment]) -> Refused:
        """Returns the partitions whose reassignment the store refuses to write; it does not begin."""
        if not wanted:
            return {}
        context = self._context
        before = {partition: context.assignment(partition) or ReplicaAssignment(()) for partition in wanted}
        changed = {partition: assignment for partition, assignment in wanted.items() if assignment != before[partition]}
        for partition, assignment in wanted.items():
            self._interrupted[partition] = [each for each in before[partition].replicas if each not in assignment.replicas]
            await self._core.pause()
        refused = await self._write(changed)
        self._forget_interrupted(refused)
        partitions = [partition for partition in wanted if partition not in refused and context.assignment(partition) is not None]
        for partition in partitions:
            logger.info(
                "reassigning %s from %s to %s", partition, list(before[partition].replicas), list(wanted[partition].target_replicas)
            )
            await self._core.pause()
        await self._continue(partitions)
        return refused

    async def _continue(self, partitions: Sequence[TopicPartition]) -> None:
        unneeded = {partition: self._interrupted.setdefault(partition, ()) for partition in partitions}
        refused = await self._stop(unneeded)
        if refused:
            self._core.states.on_refused()
        stopped = [partition for partition in partitions if partition not in refused]
        self._interrupted.update(dict.fromkeys(stopped, ()))
        complete = [partition for partition in stopped if self._is_complete(partition)]
        ended = set(complete)
        moving = [partition for partition in stopped if partition not in ended]
        batch = self._core.batch()
        raised = await self._core.elections.raise_epochs(moving, batch)
        await batch.send()
        for partition in raised:
            assignment, leadership = self._context.assignment(partition), self._context.leaderships.get(partition)
            if assignment is not None and leadership is not None:
                batch.leader_and_isr(assignment.adding_replicas, partition, leadership, is_new=True)
            await self._core.pause()
        await batch.send()
        self._forget_interrupted(raised)
        await self._end(complete)
        self._forget_interrupted(complete)

    def _forget_interrupted(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._interrupted.pop(partition, None)

    async def _end(self, partitions: Sequence[TopicPartition]) -> None:
        """End reassignments. Those that the store refuses to write stay as they are, and are tried again."""
        if not partitions:
            return
        context = self._context
        before = {partition: context.assignment(partition) or ReplicaAssignment(()) for partition in partitions}
        final = {partition: ReplicaAssignment(assignment.target_replicas) for partition, assignment in before.items()}
        for partition, assignment in final.items():
            context.set_assignment(partition, assignment)
        refused: Refused = {}
        try:
            await self._lead_among_replicas(partitions, refused)
            refused |= await self._stop(
                {partition: assignment.removing_replicas for partition, assignment in before.items() if partition not in refused}
            )
            refused |= await self._write({partition: assignment for partition, assignment in final.items() if partition not in refused})
        except StoreError:
            for partition, assignment in before.items():
                context.set_assignment(partition, assignment)  # as in the store: to be tried again
            raise
        for partition in refused:
            context.set_assignment(partition, before[partition])
        if refused:
            self._core.states.on_refused()
        await self._on_ended([partition for partition in partitions if partition not in refused])

    async def _on_ended(self, partitions: Sequence[TopicPartition]) -> None:
        context = self._context
        await self._order.remove(partition for partition in partitions if context.assignment(partition) is not None)
        batch = self._core.batch()
        batch.update_metadata(EVERY_BROKER, partitions)
        await batch.send()
        without_state = [each for each in partitions if each not in context.leaderships and context.assignment(each) is not None]
        await self._core.elections.bring_up(without_state, batch)
        await batch.send()
        for partition in partitions:
            logger.info("reassigned %s to %s", partition, list(context.replicas(partition)))
            await self._core.pause()

    async def _lead_among_replicas(self, partitions: Sequence[TopicPartition], refused: Refused) -> None:
        """Raise the epoch where the leader remains a replica, so that the new list of replicas is sent; elect a leader
        elsewhere."""
        staying: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        for partition in partitions:
            leadership = self._context.leaderships.get(partition)
            if leadership is not None:
                leader = leadership.state.leader
                stays = leader in self._context.replicas(partition) and self._context.is_online(leader, partition)
                (staying if stays else leaderless).append(partition)
        batch = self._core.batch()
        await self._core.elections.raise_epochs(staying, batch, refused)
        await self._core.elections.elect_reassigned(leaderless, batch, refused)
        await batch.send()

    async def _stop(self, unneeded: Mapping[TopicPartition, Sequence[int]]) -> Refused:
        """Remove replicas that are no longer assigned from the ISRs, stop them, and delete their logs. Returns the partitions whose state
        the store refuses to change: the log of a replica that may be elected is not deleted."""
        refused: Refused = {}
        if not any(unneeded.values()):
            return refused
        batch = self._core.batch()
        losing = [
            partition
            for partition, brokers in unneeded.items()
            if partition in self._context.leaderships and self._context.leaderships[partition].state.leader in brokers
        ]
        await self._core.elections.elect_reassigned(losing, batch, refused)
        await batch.send()
        replicas = [Replica(partition, each) for partition, brokers in unneeded.items() if partition not in refused for each in brokers]
        refused |= await self._core.elections.take_offline(replicas, batch)
        await batch.send()
        for partition, brokers in unneeded.items():
            if partition not in refused:
                batch.stop_replica(brokers, partition, delete=True)
            await self._core.pause()
        await batch.send()
        return refused

    async def _write(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> Refused:
        """Write assignments to the topics' znodes and to the context; topics that were deleted meanwhile are skipped. Returns the
        partitions whose znode the store refuses to change.

        Changes by other clients to the same znodes are kept, because any broker may add partitions. A malformed znode is replaced.
        """
        refused: Refused = {}
        remaining: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in assignments.items():
            remaining.setdefault(partition.topic, {})[partition.partition] = assignment
        while remaining:
            topics = list(remaining)
            writes = []
            for topic, outcome in zip(topics, await self._core.store.pipeline([Get(topic_path(topic)) for topic in topics]), strict=True):
                if isinstance(outcome, NoNode):
                    self._context.remove_topic(topic)
                    del remaining[topic]
                    continue
                await self._core.pause()
                data, stat = data_and_stat(outcome)
                try:
                    found = decode_topic(topic_path(topic), data)
                except MalformedZNode as error:  # as in Apache Kafka, where the context alone decides what is written
                    logger.error("topic %s gets the replicas again that this controller knows: %s", topic, error)
                    found = TopicAssignment(self._context.topic_ids.get(topic), self._context.assignments.get(topic, {}))
                merged = found._replace(partitions={**found.partitions, **remaining[topic]})
                writes.append((topic, SetData(topic_path(topic), encode_topic(merged), stat.version)))
            outcomes = await self._core.states.write([write for _, write in writes])
            for (topic, _), outcome in zip(writes, outcomes, strict=True):
                if isinstance(outcome, BadVersion | NoNode):
                    continue
                if isinstance(outcome, StoreError):
                    logger.error(
                        "%s cannot be written, so the replicas of the topic stay as they are for now: %s", topic_path(topic), outcome
                    )
                for index, assignment in remaining.pop(topic).items():
                    partition = TopicPartition(topic, index)
                    if isinstance(outcome, StoreError):
                        refused[partition] = outcome
                    else:
                        self._context.set_assignment(partition, assignment)
        return refused


def _check_list(target: Sequence[int]) -> None:
    """Raises InvalidReplicaAssignment for a list of replicas that no partition can have."""
    listed = f"ArrayBuffer({', '.join(map(str, target))})"
    if not target:
        raise InvalidReplicaAssignment("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"Duplicate replica ids in partition reassignment replica list: {listed}")
    if any(each < 0 for each in target):
        raise InvalidReplicaAssignment(f"Invalid broker id in replica list: {listed}")
