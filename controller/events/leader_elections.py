"""Runs elections on request: from ElectLeaders, and from /admin/preferred_replica_election, which old tools create."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from ottla.config.keys.replication import LEADER_IMBALANCE_PER_BROKER_PERCENTAGE
from ottla.controller.errors import (
    ControllerError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidTopicName,
    NoNode,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from ottla.controller.state.core import ControllerCore
from ottla.controller.store.metadata_store import Delete, Exists, Get, data_and_stat
from ottla.controller.znodes.changes import decode_partitions
from ottla.controller.znodes.layout import NO_LEADER, PREFERRED_REPLICA_ELECTION
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.pauses import how_often
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

ElectionResult: TypeAlias = int | ControllerError
"""The new leader, or the reason why there is none."""


class LeaderElections:
    """Elections on request."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core
        self._context = core.context

    async def elect(self, partitions: Iterable[TopicPartition], *, unclean: bool) -> dict[TopicPartition, ElectionResult]:
        """Elect preferred or, with `unclean`, any leaders of these partitions. Returns the leader or the error of each."""
        results: dict[TopicPartition, ElectionResult] = {}
        electable = []
        for partition in await how_often(partitions):
            await self._core.pause()
            objection = self._objection(partition, unclean=unclean)
            if objection is None:
                electable.append(partition)
            else:
                results[partition] = objection
        batch = self._core.batch()
        if unclean:
            elected = set(await self._core.elections.elect_offline(electable, batch, unclean=True))
        else:
            elected = set(await self._core.elections.elect_preferred(electable, batch))
        await batch.send()
        strategy = "OfflinePartitionLeaderElectionStrategy(true)" if unclean else "PreferredReplicaPartitionLeaderElectionStrategy"
        for partition in electable:
            await self._core.pause()
            if partition in elected:
                results[partition] = self._context.leaderships[partition].state.leader
            else:
                unavailable = EligibleLeadersNotAvailable if unclean else PreferredLeaderNotAvailable
                results[partition] = unavailable(f"Failed to elect leader for partition {partition} under strategy {strategy}")
        return results

    async def rebalance(self) -> None:
        """Elect the preferred replicas of every broker that leads too few of the partitions it should lead; not during
        reassignments."""
        context = self._context
        preferring: Counter[int] = Counter()
        elsewhere: dict[int, list[TopicPartition]] = {}
        for topic, assignments in context.assignments.items():
            for some in slices(assignments.items()):
                if any(assignment.is_reassigning for _, assignment in some):
                    return
                for index, assignment in () if context.is_being_deleted(topic) else some:
                    leadership = context.leaderships.get(TopicPartition(topic, index))
                    if leadership is not None and assignment.replicas:  # an edited znode may name none
                        preferred = assignment.replicas[0]
                        preferring[preferred] += 1
                        if leadership.state.leader != preferred:
                            elsewhere.setdefault(preferred, []).append(TopicPartition(topic, index))
                await self._core.pause()
        allowed = self._core.config[LEADER_IMBALANCE_PER_BROKER_PERCENTAGE]
        batch = self._core.batch()
        for broker_id, partitions in elsewhere.items():
            if len(partitions) * 100 > allowed * preferring[broker_id]:
                elected = await self._core.elections.elect_preferred(partitions, batch)
                if elected:
                    logger.info("%d of %d leaderships moved back to broker %d", len(elected), len(partitions), broker_id)
        await batch.send()

    async def on_preferred_election_order(self) -> None:
        """Carry out /admin/preferred_replica_election, delete it, and watch for the next one."""
        watch = self._core.watch("PreferredReplicaElection", self.on_preferred_election_order)
        _, order = await self._core.store.pipeline([Exists(PREFERRED_REPLICA_ELECTION, watch), Get(PREFERRED_REPLICA_ELECTION)])
        if isinstance(order, NoNode):
            return
        partitions: list[TopicPartition] = []
        try:
            partitions = decode_partitions(PREFERRED_REPLICA_ELECTION, data_and_stat(order)[0])
        except MalformedZNode as error:  # removed: with it, no broker could become controller
            logger.error("%s is removed: %s", PREFERRED_REPLICA_ELECTION, error)
        for partition, result in (await self.elect(partitions, unclean=False)).items():
            if isinstance(result, ControllerError) and not isinstance(result, ElectionNotNeeded):
                logger.warning("the preferred replica of %s was not elected: %s", partition, result)
        await self._core.states.write_or_raise([Delete(PREFERRED_REPLICA_ELECTION)], ignoring=(NoNode,))

    def _objection(self, partition: TopicPartition, *, unclean: bool) -> ControllerError | None:
        replicas = self._context.replicas(partition)
        if not replicas:
            return UnknownTopicOrPartition("The partition does not exist.")
        if self._context.is_being_deleted(partition.topic):
            return InvalidTopicName("The topic is being deleted")
        leadership = self._context.leaderships.get(partition)
        leader = NO_LEADER if leadership is None else leadership.state.leader
        needed = not self._context.is_live(leader) if unclean else leader != replicas[0]
        return None if needed else ElectionNotNeeded("")
