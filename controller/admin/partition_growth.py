"""Adds partitions to topics for CreatePartitions. Kafka's ZkAdminManager.createPartitions, with its error texts."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.admin.placement import RandomBelow, assign_replicas
from ottla.controller.admin.stored_topics import fix_count
from ottla.controller.admin.topic_admin import MAX_NEW_PARTITIONS, TakeMutations, unlimited
from ottla.controller.errors import (
    AdminTimeout,
    BadVersion,
    ControllerError,
    InvalidAdminRequest,
    InvalidPartitions,
    InvalidReplicaAssignment,
    NodeExists,
    NoNode,
    ReassignmentInProgress,
    RequestTooLong,
    UnknownTopicOrPartition,
)
from ottla.controller.store.metadata_store import Get, MetadataStore, SetData, Stat, data_and_stat
from ottla.controller.znodes.layout import NO_LEADER, ReplicaAssignment, TopicAssignment, decode_topic, encode_topic, topic_path
from ottla.controller.znodes.topic_names import is_valid_topic_name
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.pauses import pause
from ottla.replication.ports.cluster import MetadataCache

logger = logging.getLogger(__name__)

_TOPICS_AT_ONCE = 100
"""Topics that are read from the store in one round trip."""


class NewPartitions(NamedTuple):
    """A request for `total` partitions of a topic. `assignments` has the replicas of each new one; None leaves the
    placement to the broker."""

    topic: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class PartitionGrowth:
    """Adds partitions. Works on any broker, as TopicAdmin does."""

    def __init__(
        self,
        store: MetadataStore,
        cluster: MetadataCache,
        metadata_waits: MetadataWaits,
        random_below: RandomBelow,
        coordinating: Collection[str] = (),
        *,
        may_grow: bool = False,
    ) -> None:
        """`coordinating` are the topics whose number of partitions decides where coordinators store states. They get no new partitions,
        unless they `may_grow`; the new ones hold no states then."""
        self._coordinating = coordinating
        self._may_grow = may_grow
        self._store = store
        self._cluster = cluster
        self._metadata_waits = metadata_waits
        self._random_below = random_below

    async def create_partitions(
        self,
        topics: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int = 30_000,
        take_mutations: TakeMutations = unlimited,
    ) -> dict[str, ControllerError | None]:
        """For each topic None, or the reason why no partitions were added. AdminTimeout: they were added, but not all
        have a leader yet."""
        results: dict[str, ControllerError | None] = {}
        grown: list[NewPartitions] = []
        for first in range(0, len(topics), _TOPICS_AT_ONCE):
            some = topics[first : first + _TOPICS_AT_ONCE]
            found = await self._store.pipeline([Get(topic_path(wanted.topic)) for wanted in some if is_valid_topic_name(wanted.topic)])
            outcomes = iter(found)
            for wanted in some:
                await pause()
                outcome = next(outcomes) if is_valid_topic_name(wanted.topic) else NoNode(wanted.topic)
                if isinstance(outcome, NoNode):
                    results[wanted.topic] = _unknown(wanted.topic)
                    continue
                try:
                    await self._grow(wanted, *data_and_stat(outcome), None if validate_only else take_mutations)
                    results[wanted.topic] = None
                    grown.append(wanted)
                except ControllerError as error:
                    results[wanted.topic] = error.with_traceback(None)
                except MalformedZNode as error:
                    logger.error("topic %s gets no new partitions: %s", wanted.topic, error)
                    results[wanted.topic] = ControllerError(str(error))
        if validate_only or not grown:
            return results
        await self._metadata_waits.until_all(grown, self._has_leaders, timeout_ms)
        for wanted in grown:
            await pause()
            if timeout_ms <= 0 or not self._has_leaders(wanted):
                results[wanted.topic] = AdminTimeout("")
        return results

    async def _grow(self, wanted: NewPartitions, data: bytes | None, stat: Stat, take_mutations: TakeMutations | None) -> None:
        """Add the partitions. Without `take_mutations` only check whether that is possible."""
        topic = wanted.topic
        path = topic_path(topic)
        while True:
            existing = decode_topic(path, data)
            added = self._place(wanted, existing.partitions)
            if take_mutations is None:
                return
            take_mutations(len(added))
            take_mutations = unlimited  # counted, however often another client interferes
            partitions = {**existing.partitions, **{index: ReplicaAssignment(replicas) for index, replicas in added.items()}}
            grown = encode_topic(TopicAssignment(existing.topic_id, partitions))
            try:
                if topic in self._coordinating:
                    fixed = await fix_count(self._store, topic, len(existing.partitions))
                    await self._store.multi([SetData(path, grown, stat.version), *fixed])
                else:
                    await self._store.set(path, grown, stat.version)
            except (BadVersion, NodeExists, NoNode):
                try:
                    data, stat = await self._store.get(path)  # another client added partitions to it, or deleted it
                except NoNode:
                    raise _unknown(topic) from None
                continue
            except RequestTooLong as error:
                raise InvalidAdminRequest(str(error)) from None
            logger.info("topic %s gets %d new partitions", topic, len(added))
            return

    def _place(self, wanted: NewPartitions, existing: Mapping[int, ReplicaAssignment]) -> dict[int, tuple[int, ...]]:
        topic, old_count = wanted.topic, len(existing)
        if not existing:
            raise _unknown(topic)
        if any(assignment.is_reassigning for assignment in existing.values()):
            raise ReassignmentInProgress(f"A partition reassignment is in progress for the topic '{topic}'.")
        if wanted.assignments is not None and len(wanted.assignments) > MAX_NEW_PARTITIONS:
            raise _too_many(len(wanted.assignments))
        increment = wanted.total - old_count
        if increment < 0:
            raise InvalidPartitions(f"Topic currently has {old_count} partitions, which is higher than the requested {wanted.total}.")
        if increment == 0:
            raise InvalidPartitions(f"Topic already has {old_count} partitions.")
        if topic in self._coordinating and not self._may_grow:
            raise InvalidPartitions(
                f"Topic '{topic}' is internal: groups and transactional ids do not use partitions that are added. With brokers of Apache "
                "Kafka in the cluster most of them would lose their stored state. Set ottla.internal.topics.can.grow=true on the "
                "controller to add partitions all the same."
            )
        if increment > MAX_NEW_PARTITIONS and wanted.assignments is None:
            raise _too_many(increment)
        first = existing[0].replicas if 0 in existing else ()
        if not first:
            raise ControllerError(f"Unexpected existing replica assignment for topic '{topic}', partition id 0 is missing.")
        racks = {broker_id: self._cluster.brokers[broker_id].rack for broker_id in sorted(self._cluster.brokers)}
        if wanted.assignments is None:
            start = max(0, next((at for at, broker_id in enumerate(racks) if broker_id >= first[0]), -1))
            return assign_replicas(racks, increment, len(first), self._random_below, start, old_count)
        return _check_assignments(wanted.assignments, increment, old_count, len(first), set(racks))

    def _has_leaders(self, wanted: NewPartitions) -> bool:
        return all(self._cluster.leader_of(wanted.topic, index)[0] != NO_LEADER for index in range(wanted.total))


def _unknown(topic: str) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"The topic '{topic}' does not exist.")


def _too_many(count: int) -> InvalidPartitions:
    return InvalidPartitions(
        f"Excessively large number of partitions per request: {count}, at most {MAX_NEW_PARTITIONS} can be created at once."
    )


def _check_assignments(
    assignments: Sequence[Sequence[int]], increment: int, old_count: int, factor: int, brokers: set[int]
) -> dict[int, tuple[int, ...]]:
    unknown = {broker_id for replicas in assignments for broker_id in replicas} - brokers
    if unknown:
        raise InvalidReplicaAssignment(f"Unknown broker(s) in replica assignment: {', '.join(map(str, sorted(unknown)))}.")
    if len(assignments) != increment:
        raise InvalidReplicaAssignment(f"Increasing the number of partitions by {increment} but {len(assignments)} assignments provided.")
    placed = {old_count + at: tuple(replicas) for at, replicas in enumerate(assignments)}
    for index, replicas in placed.items():
        if not replicas:
            raise InvalidReplicaAssignment(f"Cannot have replication factor of 0 for partition id {index}.")
        listed = ", ".join(map(str, replicas))
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"Duplicate brokers not allowed in replica assignment: {listed} for partition id {index}.")
    bad = {index: len(replicas) for index, replicas in placed.items() if len(replicas) != factor}
    if bad:
        raise InvalidReplicaAssignment(
            f"Inconsistent replication factor between partitions, partition 0 has {factor} while partitions "
            f"[{', '.join(map(str, bad))}] have replication factors [{', '.join(map(str, bad.values()))}], respectively."
        )
    return placed
