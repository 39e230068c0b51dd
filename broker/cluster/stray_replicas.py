"""Sets aside replicas that were moved to other brokers, or whose topics were deleted, while this broker was down: it never receives a
StopReplica for them.

A controller sends StopReplica to live brokers only, and sends a broker that comes back only its current replicas. Such a log would stay
forever: opened at each start, but served to no client. So, some time after a change of controller or a restart of this broker, the logs
without a LeaderAndIsr are compared with the metadata and with the metadata store. A log's directory is renamed to end with `-stray` if both
have the topic with the log's id, and the partition with replicas on other brokers only. Without ZooKeeper the same is done if neither has a
topic with the log's id. As in Apache Kafka with KRaft, the directory remains until an operator deletes it. Owned by `ClusterWiring`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from ottla.controller.errors import NoNode, StoreError
from ottla.controller.store.metadata_store import Get, MetadataStore, data_and_stat
from ottla.controller.znodes.layout import TopicAssignment, decode_topic, topic_path
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.pauses import pause
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.storage.disk.background import Background
from ottla.storage.errors import LogDirFailure
from ottla.storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

DELAY_MS = 30_000
"""Delay of the comparison, milliseconds: it is not urgent, and by then the controller has sent all its requests."""


class StrayReplicas:
    """See the module."""

    def __init__(self, store: MetadataStore, replicas: ReplicaManager, background: Background) -> None:
        self._store = store
        self._replicas = replicas
        self._background = background
        self._is_due = False
        self._looking: asyncio.Task[None] | None = None

    def on_other_controller(self) -> None:
        """Another controller sends requests, or the controller sends to another incarnation of this broker: schedule a
        comparison."""
        if not self._is_due:
            self._is_due = True
            self._background.schedule("stray-replicas", DELAY_MS, 0, self._begin)

    async def close(self) -> None:
        """Stop the comparison."""
        self._is_due = True
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    def _begin(self) -> None:
        self._is_due = False
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="stray-replicas")

    async def _look(self) -> None:
        suspects = await self._not_ours(list(self._replicas.log_manager.current_logs()))
        if not suspects:
            return
        try:
            stored = await self._stored({each.topic_partition.topic for each in suspects})
        except StoreError as error:
            logger.warning("cannot check yet whether %d replicas still belong here (%s)", len(suspects), error)
            self.on_other_controller()
            return
        for partition_log in suspects:
            topic = partition_log.topic_partition.topic
            if topic in stored and (what := self._what_happened(partition_log, stored[topic])):
                self._set_aside(partition_log, what)
                await pause()

    async def _stored(self, topics: set[str]) -> dict[str, TopicAssignment | None]:
        """The assignments in the metadata store; None for topics that do not exist, nothing for unreadable ones. Raises StoreError."""
        paths = {topic: topic_path(topic) for topic in topics}
        found: dict[str, TopicAssignment | None] = {}
        store = self._store
        for (topic, path), outcome in zip(paths.items(), await store.pipeline(list(map(Get, paths.values()))), strict=True):
            with suppress(MalformedZNode):
                found[topic] = None if isinstance(outcome, NoNode) else decode_topic(path, data_and_stat(outcome)[0])
        return found

    async def _not_ours(self, logs: Iterable[PartitionLog]) -> list[PartitionLog]:
        found = []
        for each in logs:
            if self._seems_stray(each):
                found.append(each)
            await pause()
        return found

    def _seems_stray(self, partition_log: PartitionLog) -> bool:
        """Whether no LeaderAndIsr made this broker a replica, and the metadata names other brokers, or does not have the topic."""
        topic_partition = partition_log.topic_partition
        manager = self._replicas
        if manager.partition(*topic_partition) is not None or topic_partition in manager.offline or partition_log.topic_id == ZERO_UUID:
            return False
        image = manager.cluster.topics.get(topic_partition.topic)
        if image is None or image.topic_id != partition_log.topic_id:
            return manager.frees_names
        state = image.partitions.get(topic_partition.partition)
        return state is not None and manager.broker_id not in state.replicas

    def _what_happened(self, partition_log: PartitionLog, stored: TopicAssignment | None) -> str:
        """Why the log is not needed any more, for the log file; empty if it may be needed."""
        if stored is None or stored.topic_id != partition_log.topic_id:
            return "its topic was deleted" if self._replicas.frees_names else ""
        assignment = stored.partitions.get(partition_log.topic_partition.partition)
        if assignment is None or not assignment.replicas:
            return ""
        named = {*assignment.replicas, *assignment.adding_replicas, *assignment.removing_replicas}
        return "" if self._replicas.broker_id in named else "it was moved to other brokers"

    def _set_aside(self, partition_log: PartitionLog, what: str) -> None:
        """Rename the log's directory, unless a request named the replica meanwhile."""
        topic_partition = partition_log.topic_partition
        if self._replicas.log_manager.get(topic_partition) is not partition_log or not self._seems_stray(partition_log):
            return
        logger.warning("%s: %s while this broker was down or its log directory had failed", topic_partition, what)
        try:
            self._replicas.log_manager.delete(topic_partition, is_stray=True)
        except LogDirFailure as failure:
            self._replicas.log_manager.report_failure(failure)
