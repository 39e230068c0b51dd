"""Finds `__remote_log_metadata` in the cluster's metadata, creates the topic if there is none, and judges what it finds.

A broker that needs the topic tries until the topic is there. Each reason against it is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.config.remote_metadata import MetadataSettings
from ottla.config.topic import CLEANUP_POLICY, REMOTE_STORAGE_ENABLE, RETENTION_MS
from ottla.controller.admin.topic_admin import CreatedTopic, NewTopic, TopicAdmin
from ottla.controller.errors import AdminTimeout, ControllerError, StoreError, TopicExists
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.ports.cluster import MetadataCache, TopicImage
from ottla.storage.remote.metadata.log import METADATA_TOPIC

logger = logging.getLogger(__name__)

LONGEST_PAUSE_MS: Final = 10_000
"""The longest pause between two attempts to create the topic."""


class MetadataTopic:
    """See the module. `problem` is why the topic cannot be used now; empty if it can."""

    def __init__(self, settings: MetadataSettings, cluster: MetadataCache, topic_admin: TopicAdmin) -> None:
        self._settings = settings
        self._cluster = cluster
        self._topic_admin = topic_admin
        self.problem = ""
        self._pause_ms = settings.retry_interval_ms
        self._next_attempt = 0.0

    def image(self) -> TopicImage | None:
        """Returns the topic, if it is there and right. All brokers have to use the same number of partitions."""
        image = self._cluster.topics.get(METADATA_TOPIC)
        if image is None:
            return None
        wanted = self._settings.partitions
        problem = ""
        if len(image.partitions) != wanted:
            problem = (
                f"it has {len(image.partitions)} partitions, but rlmm.config.remote.log.metadata.topic.num.partitions is {wanted}; "
                "set the number that the other brokers use, and restart"
            )
        elif image.topic_id == ZERO_UUID:
            problem = "it has no topic id; raise inter.broker.protocol.version"
        self._report(problem)
        return None if problem else image

    def is_missing(self) -> bool:
        """Tells if the cluster has no such topic."""
        return METADATA_TOPIC not in self._cluster.topics

    async def create(self) -> None:
        """Creates the topic, unless the last attempt was just now."""
        now = asyncio.get_running_loop().time()
        if now < self._next_attempt:
            return
        problem = ""
        try:
            outcome = (await self._topic_admin.create_topics([self._new_topic()]))[METADATA_TOPIC]
            if isinstance(outcome, ControllerError) and not isinstance(outcome, AdminTimeout | TopicExists):
                problem = f"it cannot be created: {outcome}"
            elif isinstance(outcome, CreatedTopic):
                logger.info("%s: created with %d partitions", METADATA_TOPIC, outcome.num_partitions)
        except (StoreError, ControllerError) as error:
            problem = f"it cannot be created: {error}"
        self._report(problem)
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS) if problem else self._settings.retry_interval_ms
        self._next_attempt = asyncio.get_running_loop().time() + self._pause_ms / 1000

    def _new_topic(self) -> NewTopic:
        configs = {
            RETENTION_MS.name: str(self._settings.retention_ms),
            CLEANUP_POLICY.name: "delete",
            REMOTE_STORAGE_ENABLE.name: "false",
        }
        return NewTopic(METADATA_TOPIC, self._settings.partitions, self._settings.replication_factor, configs=configs)

    def _report(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.error("%s: %s. Nothing is copied to the remote store, and none of its metadata is read", METADATA_TOPIC, problem)
        elif self.problem and not problem:
            logger.info("%s can be used again", METADATA_TOPIC)
        self.problem = problem
