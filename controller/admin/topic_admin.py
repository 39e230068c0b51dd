"""Creates and deletes topics on request: checks, placement, znodes. Kafka's ZkAdminManager and AdminZkClient, with
their error texts.

Works on any broker, because it only writes znodes; the controller's watches report them. Each method then waits until
this broker's metadata shows the outcome, or the client's timeout has passed. Called by the request handlers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.general import DEFAULT_REPLICATION_FACTOR, DELETE_TOPIC_ENABLE, NUM_PARTITIONS
from ottla.config.topic import TopicConfig, validate_topic_overrides
from ottla.controller.admin.config_admin import encode_checked
from ottla.controller.admin.metadata_waits import MetadataWaits
from ottla.controller.admin.placement import RandomBelow, assign_replicas
from ottla.controller.errors import (
    AdminTimeout,
    ControllerError,
    ControllerMoved,
    InvalidAdminRequest,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidTopicConfig,
    InvalidTopicName,
    NodeExists,
    NotController,
    RequestTooLong,
    StoreError,
    ThrottlingQuotaExceeded,
    TopicDeletionDisabled,
    TopicExists,
    TopicMarkedForDeletion,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.controller.registration import RandomBytes
from ottla.controller.store.metadata_store import Children, Create, Exists, MetadataStore, Request, SetData, names
from ottla.controller.znodes.java_order import scala_map_order
from ottla.controller.znodes.layout import (
    NO_LEADER,
    TOPICS,
    ReplicaAssignment,
    TopicAssignment,
    config_path,
    delete_topic_path,
    encode_topic,
    topic_path,
)
from ottla.controller.znodes.topic_ids import new_topic_id, uses_topic_ids
from ottla.controller.znodes.topic_names import has_collision_chars, is_valid_topic_name, metric_name, validate_topic_name
from ottla.pauses import pause
from ottla.protocol.uuid import ZERO_UUID
from ottla.replication.ports.cluster import MetadataCache

logger = logging.getLogger(__name__)

UNSET = -1
"""Number of partitions or replication factor to be replaced by the broker's default."""

MAX_NEW_PARTITIONS = 10_000
"""Largest number of new partitions in one request; see docs/differences.md."""


OrderById = Callable[[Mapping[str, bytes]], Awaitable[Collection[str]]]
"""Requests the deletion of the topics that have these ids, and returns the names of the others."""


TakeMutations = Callable[[int], None]
"""Counts partitions that are about to be created or deleted. Raises ThrottlingQuotaExceeded if the client has to wait first."""


def unlimited(partitions: int) -> None:
    """Counts nothing: the TakeMutations of the broker itself."""


class NewTopic(NamedTuple):
    """A topic to create. `assignments`, by partition, excludes the two numbers."""

    name: str
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class CreatedTopic(NamedTuple):
    """A topic that was created, or would be."""

    name: str
    topic_id: bytes
    """Zero if the request was only validated, and before 2.8."""
    num_partitions: int
    replication_factor: int
    config: TopicConfig


class _Plan(NamedTuple):
    topic: NewTopic
    assignments: Mapping[int, tuple[int, ...]]
    overrides: Mapping[str, str]
    config_exists: bool


class TopicAdmin:
    """Administration of topics."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        cluster: MetadataCache,
        metadata_waits: MetadataWaits,
        random_bytes: RandomBytes,
        random_below: RandomBelow,
    ) -> None:
        self._store = store
        self._config = config
        self._cluster = cluster
        self._metadata_waits = metadata_waits
        self._random_bytes = random_bytes
        self._random_below = random_below

    # CreateTopics

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int = 30_000,
        take_mutations: TakeMutations = unlimited,
        is_soon_free: Callable[[str], bool] = lambda _: False,
    ) -> dict[str, CreatedTopic | ControllerError]:
        """Create topics of different names; for each the created topic, or the error. A name that `is_soon_free` is waited for.

        AdminTimeout means that the topic was created but its partitions had no leaders within the timeout.
        """
        results: dict[str, CreatedTopic | ControllerError] = {}
        plans: list[_Plan] = []
        for topic in topics[MAX_NEW_PARTITIONS:]:
            await pause()
            results[topic.name] = InvalidPartitions(
                f"Excessively large number of topics per request: {len(topics)}, at most {MAX_NEW_PARTITIONS} can be created at once."
            )
        topics = topics[:MAX_NEW_PARTITIONS]
        clock = asyncio.get_running_loop().time
        until = clock() + timeout_ms / 1000
        await self._metadata_waits.until_all(topics, lambda topic: not is_soon_free(topic.name), timeout_ms)
        existing = await self._what_exists(topics)
        remaining = MAX_NEW_PARTITIONS
        for topic in topics:
            await pause()
            try:
                plan = self._plan(topic, existing, remaining)
                if not validate_only:
                    take_mutations(len(plan.assignments))
                    existing.add(topic.name)
                remaining -= len(plan.assignments)
                plans.append(plan)
                results[topic.name] = self._created(plan, ZERO_UUID)
            except ControllerError as error:
                results[topic.name] = error.with_traceback(None)
        if validate_only or not plans:
            return results
        for plan, outcome in zip(plans, await self._write(plans), strict=True):
            results[plan.topic.name] = outcome
        created = [plan for plan in plans if isinstance(results[plan.topic.name], CreatedTopic)]
        await self._metadata_waits.until_all(created, self._has_leaders, int((until - clock()) * 1000))
        for plan in created:
            await pause()
            outcome = results[plan.topic.name]
            if isinstance(outcome, CreatedTopic) and (timeout_ms <= 0 or not self._has_leaders(plan)):
                results[plan.topic.name] = AdminTimeout("", outcome.topic_id)
        return results

    def _plan(self, topic: NewTopic, existing: "_Existing", remaining: int) -> _Plan:
        if topic.name in self._cluster.topics:
            raise TopicExists(f"Topic '{topic.name}' already exists.")
        without_value = [name for name, value in topic.configs.items() if value is None]
        if without_value:
            raise InvalidTopicConfig(f"Null value not supported for topic configs: {','.join(without_value)}")
        overrides = {name: value for name, value in topic.configs.items() if value is not None}
        if (topic.num_partitions != UNSET or topic.replication_factor != UNSET) and topic.assignments:
            raise InvalidAdminRequest(
                "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time."
            )
        if topic.assignments:
            assignments = {index: tuple(replicas) for index, replicas in topic.assignments.items()}
            _check_amount(len(assignments), remaining)
        else:
            num_partitions = self._config[NUM_PARTITIONS] if topic.num_partitions == UNSET else topic.num_partitions
            factor = self._config[DEFAULT_REPLICATION_FACTOR] if topic.replication_factor == UNSET else topic.replication_factor
            _check_amount(num_partitions, remaining)
            racks = {broker_id: broker.rack for broker_id, broker in self._cluster.brokers.items()}
            assignments = assign_replicas(racks, num_partitions, factor, self._random_below)
        validate_topic_name(topic.name)
        existing.check_free(topic.name)
        check_manual_assignment(assignments)
        try:
            validate_topic_overrides(overrides, self._config)
        except ConfigError as error:
            raise InvalidTopicConfig(str(error)) from error
        encode_checked(overrides)
        return _Plan(topic, assignments, overrides, topic.name in existing.with_config)

    async def _what_exists(self, topics: Sequence[NewTopic]) -> "_Existing":
        legal = []
        for topic in topics:
            await pause()
            if is_valid_topic_name(topic.name):
                legal.append(topic.name)
        requests: list[Request] = [Children(TOPICS)]
        for name in legal:
            await pause()
            requests += (Exists(delete_topic_path(name)), Exists(config_path("topics", name)))
        all_topics, *stats = await self._store.pipeline(requests)
        return _Existing(
            set(names(all_topics)),
            marked_for_deletion={name for name, stat in zip(legal, stats[::2], strict=True) if stat is not None},
            with_config={name for name, stat in zip(legal, stats[1::2], strict=True) if stat is not None},
        )

    async def _write(self, plans: Sequence[_Plan]) -> list[CreatedTopic | ControllerError]:
        """Write the config node and the topic node of each, in this order, in one round trip."""
        writes: list[Request] = []
        ids = [new_topic_id(self._random_bytes) if uses_topic_ids(self._config) else None for _ in plans]
        for plan, topic_id in zip(plans, ids, strict=True):
            await pause()
            path, config = config_path("topics", plan.topic.name), encode_checked(plan.overrides)
            partitions = {index: ReplicaAssignment(replicas) for index, replicas in plan.assignments.items()}
            writes.append(SetData(path, config) if plan.config_exists else Create(path, config))
            writes.append(Create(topic_path(plan.topic.name), encode_topic(TopicAssignment(topic_id, partitions))))
            logger.info("creating topic %s with %d partitions and configuration %s", plan.topic.name, len(partitions), plan.overrides)
        outcomes = await self._store.pipeline(writes)
        results: list[CreatedTopic | ControllerError] = []
        for plan, topic_id, outcome in zip(plans, ids, outcomes[1::2], strict=True):
            await pause()
            if isinstance(outcome, NodeExists):
                results.append(TopicExists(f"Topic '{plan.topic.name}' already exists."))
            elif isinstance(outcome, RequestTooLong):
                results.append(InvalidAdminRequest(str(outcome)))
            elif isinstance(outcome, StoreError):
                raise outcome
            else:
                results.append(self._created(plan, topic_id or ZERO_UUID))
        return results

    def _created(self, plan: _Plan, topic_id: bytes) -> CreatedTopic:
        factor = len(plan.assignments[0])
        return CreatedTopic(plan.topic.name, topic_id, len(plan.assignments), factor, TopicConfig(plan.overrides, self._config))

    def _has_leaders(self, plan: _Plan) -> bool:
        return all(self._cluster.leader_of(plan.topic.name, index)[0] != NO_LEADER for index in plan.assignments)

    # DeleteTopics

    async def delete_topics(
        self,
        topics: Sequence[str],
        *,
        ids: Mapping[str, bytes] = {},
        order_by_id: OrderById | None = None,
        timeout_ms: int = 30_000,
        take_mutations: TakeMutations = unlimited,
    ) -> dict[str, ControllerError | None]:
        """Request the deletion of topics and wait until this broker no longer knows them; for each topic None, or the
        error.

        A topic with an id in `ids` is not deleted if another topic has its name by now; `order_by_id` checks that.
        Raises StoreError.
        """
        if not self._config[DELETE_TOPIC_ENABLE]:
            return {topic: TopicDeletionDisabled("Topic deletion is disabled.") for topic in topics}
        wanted = list(dict.fromkeys(topics))
        results: dict[str, ControllerError | None] = dict.fromkeys(wanted)
        requests: dict[str, Request] = {}
        for topic in wanted:
            await pause()
            if is_valid_topic_name(topic):
                requests[topic] = Exists(topic_path(topic))
        stats = await self._store.pipeline(list(requests.values())) if requests else []
        existing = dict.fromkeys(topic for topic, stat in zip(requests, stats, strict=True) if stat is not None)
        for topic in wanted:
            await pause()
            if topic not in existing:
                results[topic] = UnknownTopicOrPartition(f"Topic `{topic}` to delete does not exist")
                continue
            image = self._cluster.topics.get(topic)
            try:
                take_mutations(0 if image is None else len(image.partitions))
            except ThrottlingQuotaExceeded as exceeded:
                del existing[topic]
                results[topic] = exceeded.with_traceback(None)
        known = {topic: ids.get(topic) or self._topic_id(topic) for topic in existing}
        by_id = {topic: ids[topic] for topic in existing if topic in ids}
        if by_id:
            assert order_by_id is not None
            refused: dict[str, ControllerError]
            try:
                refused = {topic: UnknownTopicId(f"Topic `{topic}` has another id") for topic in await order_by_id(by_id)}
            except (NotController, ControllerMoved) as error:
                refused = dict.fromkeys(by_id, NotController(str(error)))
            for topic, reason in refused.items():
                del existing[topic]
                results[topic] = reason
        orders: list[Request] = []
        for topic in existing:
            await pause()
            if topic not in by_id:
                orders.append(Create(delete_topic_path(topic)))
        outcomes = await self._store.pipeline(orders) if orders else []
        for outcome in outcomes:
            # A topic whose deletion was already requested is waited for as well.
            if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExists):
                raise outcome

        def is_there(topic: str) -> bool:
            return topic in self._cluster.topics and (known[topic] is None or self._topic_id(topic) in (None, known[topic]))

        await self._metadata_waits.until_all(existing, lambda topic: not is_there(topic), timeout_ms)
        for topic in existing:
            await pause()
            if timeout_ms <= 0 or is_there(topic):
                results[topic] = AdminTimeout("")
        return results

    def _topic_id(self, topic: str) -> bytes | None:
        """The id in this broker's metadata; None as long as it has none."""
        image = self._cluster.topics.get(topic)
        return None if image is None or image.topic_id == ZERO_UUID else image.topic_id


class _Existing:
    def __init__(self, topics: set[str], marked_for_deletion: set[str], with_config: set[str]) -> None:
        self.topics = topics
        self.marked_for_deletion = marked_for_deletion
        self.with_config = with_config

    def check_free(self, topic: str) -> None:
        """Raises TopicExists, TopicMarkedForDeletion, InvalidTopicName."""
        if topic in self.marked_for_deletion:
            raise TopicMarkedForDeletion(f"Topic '{topic}' is marked for deletion.")
        if topic in self.topics:
            raise TopicExists(f"Topic '{topic}' already exists.")
        colliding = self._by_metric_name.get(metric_name(topic)) if has_collision_chars(topic) else None
        if colliding:
            raise InvalidTopicName(f"Topic '{topic}' collides with existing topics: {', '.join(sorted(colliding))}")

    def add(self, topic: str) -> None:
        """Count a free topic as one that exists: topics of one request must not collide with each other."""
        if has_collision_chars(topic):
            self._by_metric_name.setdefault(metric_name(topic), []).append(topic)
        self.topics.add(topic)

    @cached_property
    def _by_metric_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for topic in self.topics:
            found.setdefault(metric_name(topic), []).append(topic)
        return found


def check_manual_assignment(assignments: Mapping[int, tuple[int, ...]]) -> None:
    """Raises InvalidReplicaAssignment unless the partitions are numbered from 0 on and have equally many, distinct
    replicas."""
    if len({len(replicas) for replicas in assignments.values()}) != 1:
        raise InvalidReplicaAssignment("All partitions should have the same number of replicas")
    if any(len(set(replicas)) != len(replicas) for replicas in assignments.values()):
        order = scala_map_order(assignments)
        shown = ", ".join(f"{index} -> ArrayBuffer({', '.join(map(str, assignments[index]))})" for index in order)
        raise InvalidReplicaAssignment(f"Duplicate replica assignment found: HashMap({shown})")
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    if any(not replicas for replicas in assignments.values()):
        raise InvalidReplicaAssignment("A partition needs at least one replica")


def _check_amount(num_partitions: int, remaining: int) -> None:
    if num_partitions > remaining:
        raise InvalidPartitions(
            f"Excessively large number of partitions per request: {num_partitions}, at most {MAX_NEW_PARTITIONS} can be created at once."
        )
