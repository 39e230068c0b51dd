"""Applies changes of configurations to the logs, the replicas and the controller. Kafka's TopicConfigHandler.

Made by the server once these exist; changes come from `dynamic_config`. Opening all logs may take minutes, and each log got the
configuration that was known at that moment. So after a change meanwhile, all logs get their configuration again.

There is no notification of a deletion: the overrides of a topic go when neither the metadata nor the replicas here have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ottla.broker.configuration.dynamic_config import TOPIC_DEFAULTS, TOPICS, DynamicConfig
from ottla.config.broker import BrokerConfig
from ottla.config.keys.replication import UNCLEAN_LEADER_ELECTION_ENABLE as BROKER_UNCLEAN_LEADER_ELECTION_ENABLE
from ottla.config.topic import UNCLEAN_LEADER_ELECTION_ENABLE
from ottla.controller.controller import Controller
from ottla.pauses import begin
from ottla.protocol.topic_partition import TopicPartition
from ottla.replication.control.replica_manager import ReplicaManager
from ottla.storage.disk.rounds import visit_all
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager


class TopicConfigChanges:
    """See the module."""

    def __init__(
        self, config: BrokerConfig, dynamic_config: DynamicConfig, logs: LogManager, replicas: ReplicaManager, controller: Controller
    ) -> None:
        self._config = config
        self._dynamic_config = dynamic_config
        self._logs = logs
        self._replicas = replicas
        self._controller = controller
        self._tasks: set[asyncio.Task[None]] = set()
        config.on_change(lambda _: self._put_in_force(None), TOPIC_DEFAULTS)
        config.on_change(self._on_unclean_election_default, [BROKER_UNCLEAN_LEADER_ELECTION_ENABLE])
        dynamic_config.on_entity_change(TOPICS, self._on_topic)
        replicas.leadership_listeners.append(lambda partition: self._forget_deleted([partition.topic_partition]))
        replicas.deletion_listeners.append(self._on_partitions_deleted)
        if dynamic_config.has_changed:
            dynamic_config.parse_again()
            self._put_in_force(None)

    async def close(self) -> None:
        """Enable no more unclean elections."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on_partitions_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        self._forget_deleted(partitions)

    def _forget_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        for topic in {each.topic for each in partitions}:
            if topic not in self._replicas.partitions and topic not in self._replicas.cluster.topics:
                self._dynamic_config.forget(topic)

    def _on_topic(self, topic: str, overrides: Mapping[str, str]) -> None:
        self._put_in_force(topic)
        if overrides.get(UNCLEAN_LEADER_ELECTION_ENABLE.name, "").strip().lower() == "true":
            self._enable_unclean_election(topic)

    def _put_in_force(self, topic: str | None) -> None:
        """Apply the configuration to the logs of one topic, or of all, with pauses."""
        logs, replicas = self._logs, self._replicas

        def put(log: PartitionLog) -> None:
            name = log.topic_partition.topic
            if topic in (None, name) and not log.is_closed:
                logs.update_config(log, self._dynamic_config.topic_config_of(name))
                replicas.on_config_change(log)

        begin(visit_all("topic-config", logs.all_logs(), put))

    def _on_unclean_election_default(self, _: frozenset[str]) -> None:
        if self._config[BROKER_UNCLEAN_LEADER_ELECTION_ENABLE]:
            self._enable_unclean_election(None)

    def _enable_unclean_election(self, topic: str | None) -> None:
        work = self._controller.enable_unclean_election(topic)
        task = asyncio.get_running_loop().create_task(work, name="unclean-election")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
