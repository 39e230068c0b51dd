"""Creates topics on demand: for Metadata requests, and internal topics for the broker itself.

Kafka's AutoTopicCreationManager. Concurrent requests for one topic share one creation. Topics are created with the
broker's defaults, internal topics with their own settings.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.keys.general import AUTO_CREATE_TOPICS_ENABLE
from ottla.config.keys.groups import OFFSETS_TOPIC_NUM_PARTITIONS, OFFSETS_TOPIC_REPLICATION_FACTOR, OFFSETS_TOPIC_SEGMENT_BYTES
from ottla.config.keys.shares import (
    SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR,
    SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS,
    SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR,
    SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES,
)
from ottla.config.keys.transactions import (
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_NUM_PARTITIONS,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_SEGMENT_BYTES,
)
from ottla.config.topic import (
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    MIN_INSYNC_REPLICAS,
    RETENTION_MS,
    SEGMENT_BYTES,
    UNCLEAN_LEADER_ELECTION_ENABLE,
)
from ottla.controller.admin.topic_admin import CreatedTopic, NewTopic, TakeMutations, TopicAdmin, unlimited
from ottla.controller.errors import AdminTimeout, ControllerError, InvalidTopicName, StoreError, TopicExists
from ottla.controller.znodes.topic_names import validate_topic_name
from ottla.coordination.error_map import error_code
from ottla.coordination.internal_topics import GROUP_METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.pauses import pause
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

REPLICATION_KEYS = {
    GROUP_METADATA_TOPIC: OFFSETS_TOPIC_REPLICATION_FACTOR.name,
    TRANSACTION_STATE_TOPIC: TRANSACTION_STATE_LOG_REPLICATION_FACTOR.name,
    SHARE_STATE_TOPIC: SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR.name,
}
"""The key with the replication factor of each internal topic."""


class InternalTopicSettings(NamedTuple):
    """The settings with which an internal topic is created."""

    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def internal_topic_settings(name: str, config: BrokerConfig) -> InternalTopicSettings | None:
    """The settings of an internal topic; None for any other name."""
    if name == GROUP_METADATA_TOPIC:
        configs = {
            COMPRESSION_TYPE.name: "producer",
            CLEANUP_POLICY.name: "compact",
            SEGMENT_BYTES.name: str(config[OFFSETS_TOPIC_SEGMENT_BYTES]),
        }
        return InternalTopicSettings(config[OFFSETS_TOPIC_NUM_PARTITIONS], config[OFFSETS_TOPIC_REPLICATION_FACTOR], configs)
    if name == TRANSACTION_STATE_TOPIC:
        configs = {
            UNCLEAN_LEADER_ELECTION_ENABLE.name: "false",
            COMPRESSION_TYPE.name: "uncompressed",
            CLEANUP_POLICY.name: "compact",
            MIN_INSYNC_REPLICAS.name: str(config[TRANSACTION_STATE_LOG_MIN_ISR]),
            SEGMENT_BYTES.name: str(config[TRANSACTION_STATE_LOG_SEGMENT_BYTES]),
        }
        return InternalTopicSettings(
            config[TRANSACTION_STATE_LOG_NUM_PARTITIONS], config[TRANSACTION_STATE_LOG_REPLICATION_FACTOR], configs
        )
    if name == SHARE_STATE_TOPIC:
        configs = {
            CLEANUP_POLICY.name: "delete",
            COMPRESSION_TYPE.name: "producer",
            SEGMENT_BYTES.name: str(config[SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES]),
            RETENTION_MS.name: "-1",
            MIN_INSYNC_REPLICAS.name: str(config[SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR]),
        }
        return InternalTopicSettings(
            config[SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS], config[SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR], configs
        )
    return None


class AutoTopics:
    """Creates topics on demand."""

    def __init__(self, config: BrokerConfig, topic_admin: TopicAdmin) -> None:
        self._config = config
        self._topic_admin = topic_admin
        self._in_flight: dict[str, asyncio.Task[dict[str, ErrorCode]]] = {}
        self._reported: dict[str, str] = {}
        """The last logged reason why an internal topic could not be created: clients retry ten times a second."""

    @property
    def enabled(self) -> bool:
        """Whether a Metadata request may create topics (`auto.create.topics.enable`)."""
        return self._config[AUTO_CREATE_TOPICS_ENABLE]

    async def create(self, names: Iterable[str], take_mutations: TakeMutations = unlimited) -> dict[str, ErrorCode]:
        """Create topics; for each the code for a Metadata response. Their partitions count towards the quota of the client.

        LEADER_NOT_AVAILABLE means that the topic was created, or existed already, and that the client should retry. Every broker answers
        so, not only the controller: some clients take UNKNOWN_TOPIC_OR_PARTITION as final.
        """
        wanted = dict.fromkeys(names)
        codes: dict[str, ErrorCode] = {}
        legal: list[str] = []
        for name in wanted:
            await pause()
            try:
                validate_topic_name(name)
                legal.append(name)
            except InvalidTopicName:
                codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        new = [name for name in legal if name not in self._in_flight]
        if new:
            task = asyncio.get_running_loop().create_task(self._create(new, take_mutations), name="auto-topics")
            self._in_flight.update(dict.fromkeys(new, task))
        creations = {name: self._in_flight[name] for name in legal}
        for creation in dict.fromkeys(creations.values()):
            # Shielded: a client that disconnects must not cancel the creation for other waiting clients.
            await asyncio.shield(creation)
        for name, creation in creations.items():
            await pause()
            codes[name] = creation.result()[name]
        return codes

    async def _create(self, names: list[str], take_mutations: TakeMutations) -> dict[str, ErrorCode]:
        try:
            # Without a timeout: the client retries until the topic has leaders.
            new = []
            for name in names:
                await pause()
                new.append(self._new_topic(name))
            results = await self._topic_admin.create_topics(new, timeout_ms=0, take_mutations=take_mutations)
        except StoreError as error:
            return dict.fromkeys(names, error_code(error))
        finally:
            for name in names:
                del self._in_flight[name]
        codes = {}
        for name in names:
            await pause()
            codes[name] = _code(results[name])
        for name in REPLICATION_KEYS.keys() & codes.keys():
            self._report(name, None if codes[name] is ErrorCode.LEADER_NOT_AVAILABLE else str(results[name]))
        return codes

    def _report(self, internal_topic: str, reason: str | None) -> None:
        """Log why an internal topic cannot be created, once for each reason. Its clients only learn that there is no coordinator."""
        if reason is None:
            self._reported.pop(internal_topic, None)
        elif self._reported.get(internal_topic) != reason:
            self._reported[internal_topic] = reason
            logger.error(
                "topic %s cannot be created, so clients find no coordinator: %s Start more brokers, or lower %s",
                internal_topic,
                reason,
                REPLICATION_KEYS[internal_topic],
            )

    def _new_topic(self, name: str) -> NewTopic:
        settings = internal_topic_settings(name, self._config)
        if settings is None:
            return NewTopic(name)
        return NewTopic(name, settings.num_partitions, settings.replication_factor, configs=dict(settings.configs))


def _code(result: CreatedTopic | ControllerError) -> ErrorCode:
    if isinstance(result, ControllerError) and not isinstance(result, AdminTimeout | TopicExists):
        return error_code(result)
    return ErrorCode.LEADER_NOT_AVAILABLE
