"""Handles events about topics: creation, added partitions, requests for deletion.

All three are reported by watches, so the writer of the znodes does not matter: a request handler of any broker, or a
tool.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.config.keys.general import DELETE_TOPIC_ENABLE
from ottla.controller.errors import BadVersion, NodeExists, NoNode, StoreError
from ottla.controller.events.reassignment import Reassignments
from ottla.controller.registration import RandomBytes
from ottla.controller.state.core import ControllerCore
from ottla.controller.store.metadata_store import Children, Create, Delete, Get, SetData, data_and_stat, names
from ottla.controller.znodes.layout import (
    DELETE_TOPICS,
    TOPICS,
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    decode_topic,
    delete_topic_path,
    encode_topic,
    topic_path,
)
from ottla.controller.znodes.pauses import slices
from ottla.controller.znodes.topic_ids import new_topic_id, uses_topic_ids
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class TopicChanges:
    """Reactions of the active controller to changes of topics."""

    def __init__(self, core: ControllerCore, reassignments: Reassignments, random_bytes: RandomBytes) -> None:
        self._core = core
        self._context = core.context
        self._reassignments = reassignments
        self._random_bytes = random_bytes
        self._unreadable: set[str] = set()
        """Topics whose znode is malformed; those whose znode was removed are in it until the next change of topics."""

    async def read_topics(self, topics: Iterable[str]) -> dict[str, TopicAssignment]:
        """The topics' assignments, with a watch on each. Topics from before topic ids get one; topics deleted meanwhile
        are omitted. Equal assignments of partitions become one object."""
        wanted = list(topics)
        requests: list[Get] = []
        for some in slices(wanted):
            requests += [Get(topic_path(topic), self._core.watch("PartitionModifications", _Modifications(self, topic))) for topic in some]
            await self._core.pause()
        outcomes = await self._core.store.pipeline(requests) if requests else []
        found: dict[str, TopicAssignment] = {}
        with_new_id: dict[str, SetData] = {}
        known: dict[ReplicaAssignment, ReplicaAssignment] = {}
        for topic, outcome in zip(wanted, outcomes, strict=True):
            await self._core.pause()
            if isinstance(outcome, NoNode):
                continue
            data, stat = data_and_stat(outcome)
            try:
                assignment = decode_topic(topic_path(topic), data)
            except MalformedZNode as error:
                logger.error("topic %s is ignored: %s", topic, error)
                self._unreadable.add(topic)
                continue
            self._unreadable.discard(topic)
            assignment = TopicAssignment(assignment.topic_id, {index: known.setdefault(a, a) for index, a in assignment.partitions.items()})
            if assignment.topic_id is None and uses_topic_ids(self._core.config):
                assignment = assignment._replace(topic_id=new_topic_id(self._random_bytes))
                with_new_id[topic] = SetData(topic_path(topic), encode_topic(assignment), stat.version)
            found[topic] = assignment
        outcomes = await self._core.states.write(list(with_new_id.values())) if with_new_id else []
        for topic, written in zip(with_new_id, outcomes, strict=True):
            if isinstance(written, BadVersion | NoNode):
                del found[topic]  # changed at this moment, or by this write, whose reply was lost: the watch reports it
            elif isinstance(written, StoreError):
                raise written
        return found

    async def on_topic_change(self) -> None:
        """Children of /brokers/topics were created or deleted."""
        (outcome,) = await self._core.store.pipeline([Children(TOPICS, self._core.watch("TopicChange", self.on_topic_change))])
        topics = set(names(outcome))
        self._unreadable &= topics
        for topic in self._context.assignments.keys() - topics:
            self._context.remove_topic(topic)
        added = await self.read_topics(sorted(topics - self._context.assignments.keys()))
        with self._core.while_many(sum(len(each.partitions) for each in added.values())):
            partitions: list[TopicPartition] = []
            for topic, assignment in added.items():
                self._context.add_topic(topic, assignment.topic_id, assignment.partitions.items())
                partitions += self._context.partitions_of(topic)
                await self._core.pause()
            if added:
                logger.info("new topics: %s", ", ".join(f"{topic} ({len(each.partitions)} partitions)" for topic, each in added.items()))
                await self._bring_up(partitions)

    async def on_partition_modifications(self, topic: str) -> None:
        """The assignment of a topic changed: it may have new partitions."""
        assignment = (await self.read_topics([topic])).get(topic)
        if assignment is None:
            return
        if topic not in self._context.assignments:  # its znode was malformed, and has been repaired
            await self.on_topic_change()
            batch = self._core.batch()
            await self._core.elections.elect_where_needed(batch)  # a leader may have died meanwhile
            await batch.send()
            return
        known = self._context.assignments[topic]
        added = {index: each for index, each in assignment.partitions.items() if index not in known}
        if not added:
            return
        if self._context.is_being_deleted(topic):
            logger.warning("%d new partitions of %s are removed again: the topic is being deleted", len(added), topic)
            restored = TopicAssignment(assignment.topic_id, dict(known))
            await self._core.states.write_or_raise([SetData(topic_path(topic), encode_topic(restored))], ignoring=(NoNode,))
            return
        logger.info("topic %s has %d new partitions", topic, len(added))
        self._context.add_topic(topic, assignment.topic_id, added.items())
        await self._bring_up([TopicPartition(topic, index) for index in added])

    async def on_topic_deletion(self) -> None:
        """Children of /admin/delete_topics were created or deleted."""
        (outcome,) = await self._core.store.pipeline([Children(DELETE_TOPICS, self._core.watch("TopicDeletion", self.on_topic_deletion))])
        await self.take_deletions(set(names(outcome)))
        batch = self._core.batch()
        await self._core.deletion.resume(batch)
        await batch.send()

    async def order_deletions(self, topics: Mapping[str, bytes]) -> list[str]:
        """Request the deletion of the topics that still have these ids; returns the names of the others. Raises
        StoreError."""
        same: list[str] = []
        others: list[str] = []
        for topic, topic_id in topics.items():
            (same if self._context.topic_ids.get(topic) == topic_id else others).append(topic)
        await self._core.states.write_or_raise([Create(delete_topic_path(topic)) for topic in same], ignoring=(NodeExists,))
        return others

    async def take_deletions(self, ordered: set[str]) -> None:
        """Queue the topics whose deletion was requested, and delete requests that do not apply."""
        if ordered - self._context.assignments.keys():
            await self.on_topic_change()  # the request may be reported before the topic itself
        # As in Apache Kafka, a topic whose znode cannot be read is one without partitions, and its deletion removes the znodes.
        unreadable = (ordered & self._unreadable) - self._context.assignments.keys()
        unknown = ordered - unreadable - self._context.assignments.keys()
        if unknown:
            # Also the request that remains if a controller dies between the last znode of a topic and the request.
            logger.info("requests to delete topics that do not exist are dropped: %s", ", ".join(sorted(unknown)))
            await self._drop_orders(unknown, with_config=True)
        if self._core.config[DELETE_TOPIC_ENABLE]:
            if unreadable:
                logger.warning(
                    "topics %s are deleted without their logs, because their znodes are malformed", ", ".join(sorted(unreadable))
                )
            self._core.deletion.enqueue(ordered - unknown)
            await self._reassignments.on_topics_deleted(ordered & self._context.assignments.keys())
        elif ordered - unknown:
            logger.warning("requests to delete topics are dropped, because delete.topic.enable is false: %s", ", ".join(sorted(ordered)))
            await self._drop_orders(ordered - unknown, with_config=False)

    async def _drop_orders(self, topics: set[str], *, with_config: bool) -> None:
        paths = [config_path("topics", topic) for topic in sorted(topics)] if with_config else []
        paths += [delete_topic_path(topic) for topic in sorted(topics)]
        for path, outcome in zip(paths, await self._core.states.write([Delete(path) for path in paths]), strict=True):
            if isinstance(outcome, StoreError) and not isinstance(outcome, NoNode):
                logger.error("cannot remove %s: %s", path, outcome)

    async def _bring_up(self, partitions: list[TopicPartition]) -> None:
        batch = self._core.batch()
        await self._core.elections.bring_up(partitions, batch)
        await batch.send()


@dataclass(frozen=True, slots=True)
class _Modifications:
    """The event of one topic's changed assignment; equal for equal topics, as `ControllerCore.watch` needs it."""

    changes: TopicChanges
    topic: str

    async def __call__(self) -> None:
        await self.changes.on_partition_modifications(self.topic)
