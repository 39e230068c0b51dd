"""Generates random histories of valid but unusual requests; `a_history(seed)` is always the same.

A history begins with some topics and records, whose names are unique to it. Requests of any API in any version follow; their fields are
filled from `request_pools` according to the declared messages. Requests that would harm the broker, or outlast the history, are left out:
see `_tame`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.fields import ArrayOf, Field, Fixed, StructOf
from ottla.protocol.schema.message import Message, Struct
from ottla.protocol.schema.registry import api
from tests.support.request_pools import (
    APIS,
    BROKER_CONFIGS,
    FIRST_VERSIONS,
    GOOD_BROKER_CONFIGS,
    GOOD_TOPIC_CONFIGS,
    LOGGER_CONFIGS,
    POOLS,
    TOPIC_CONFIGS,
    Pool,
    some_batches,
)
from tests.support.request_symbols import IdOf

STEPS = 40
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
CLIENT_IDS = ("player",) * 8 + ("", None, "ü b")
WORLD_CONFIGS: Sequence[tuple[tuple[str, str], ...]] = (
    (),
    (),
    (("cleanup.policy", "compact"),),
    (("message.timestamp.type", "LogAppendTime"),),
    (("compression.type", "gzip"),),
    (("compression.type", "lz4"), ("cleanup.policy", "compact")),
    (("compression.type", "uncompressed"),),
    (("max.message.bytes", "200"),),
    (("segment.bytes", "600"),),
    (("segment.bytes", "600"), ("index.interval.bytes", "0")),
    (("min.insync.replicas", "2"),),
    (("message.timestamp.before.max.ms", "1000"),),
)
"""Configurations of `@b` that matter to Produce and Fetch. They never change, since brokers learn of changes at different moments."""


class Step(NamedTuple):
    """One request. Without a message it is only a header, of an API in an unknown version."""

    api_key: ApiKey
    version: int
    request: Message | None
    client_id: str | None = "player"


def a_history(seed: int, steps: int = STEPS) -> list[Step]:
    """The requests, in order."""
    prefix = prefix_of(seed)
    return [*_beginning(Random(seed), prefix), *_random_steps(Random(seed + 1_000_000_007), prefix, steps), *_end(prefix)]


def prefix_of(seed: int) -> str:
    """How all names of a history begin."""
    return f"h{seed}-"


def _beginning(random: Random, prefix: str) -> list[Step]:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in random.choice(WORLD_CONFIGS)]
    topics = [
        CreatableTopic(name=prefix + "a", num_partitions=3, replication_factor=1),
        CreatableTopic(name=prefix + "b", num_partitions=1, replication_factor=1, configs=configs),
        CreatableTopic(name=prefix + "cfg", num_partitions=1, replication_factor=1),
    ]
    has_gone = random.random() < 0.25
    if has_gone:
        topics.append(CreatableTopic(name=prefix + "gone", num_partitions=1, replication_factor=1))
    steps = [Step(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, timeout_ms=60_000))]
    if has_gone:
        steps.append(Step(ApiKey.DELETE_TOPICS, 3, DeleteTopicsRequest(topic_names=[prefix + "gone"], timeout_ms=60_000)))
    for _ in range(random.randrange(5)):
        topic = random.choice("aab")
        data = PartitionProduceData(index=random.randrange(2) if topic == "a" else 0, records=some_batches(random))
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=prefix + topic, partition_data=[data])])
        steps.append(Step(ApiKey.PRODUCE, 9, request))
    return steps


def _end(prefix: str) -> list[Step]:
    """Requests for the final records of the logs, and for the state of producers."""
    names = (prefix + "a", prefix + "b", prefix + "cfg")
    offsets = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-2) for index in range(3)])
        for name in names
    ]
    fetched = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=index, partition_max_bytes=1_000_000) for index in range(3)])
        for name in names
    ]
    return [
        Step(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(replica_id=-1, topics=offsets)),
        Step(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=0, topics=fetched)),
        Step(
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0, 1, 2]) for name in names]),
        ),
    ]


def _random_steps(random: Random, prefix: str, count: int) -> list[Step]:
    keys = random.choices(list(APIS), list(APIS.values()), k=count)
    return [_a_step(key, random, prefix) for key in keys]


def _a_step(key: ApiKey, random: Random, prefix: str) -> Step:
    versions = versions_in_3_9(key)
    if random.random() < 0.01:
        return Step(key, random.choice((api(key).versions.last + 1, -1, 32767)), None)
    first = FIRST_VERSIONS.get(key, versions.first)
    version = versions.last if random.random() < 0.4 else random.randint(first, versions.last)
    request = _Maker(key, version, random, prefix).make(api(key).request)
    assert isinstance(request, Message)
    _tame(key, version, request, random)
    return Step(key, version, request, random.choice(CLIENT_IDS))


class _Maker:
    """Fills structures of one request."""

    def __init__(self, key: ApiKey, version: int, random: Random, prefix: str) -> None:
        self._key = key
        self._version = version
        self._random = random
        self._prefix = prefix
        self._is_flexible = api(key).flexible.cover(version)

    def make(self, cls: type[Struct]) -> Struct:
        return self._filled(cls, {})

    def _filled(self, cls: type[Struct], given: dict[str, Any]) -> Struct:
        values = {name: self._own(value) for name, value in given.items()}
        for field in cls.SCHEMA.fields:
            if field.name not in values and field.versions.cover(self._version):
                values[field.name] = self._value(field)
        filled = cls(**values)
        if self._is_flexible and self._random.random() < 0.02:
            filled.unknown_tagged_fields = {99: b"what a later version says"}
        return filled

    def _value(self, field: Field) -> Any:
        random = self._random
        is_nullable = field.nullable.cover(self._version)
        if isinstance(field.type, ArrayOf):
            if is_nullable and random.random() < 0.2:
                return None
            return [self._element(field) for _ in range(random.choice((0, 1, 1, 1, 1, 2, 2, 3)))]
        if isinstance(field.type, StructOf):
            return None if is_nullable and random.random() < 0.5 else self._filled(field.type.cls, {})
        if field.tag is not None and random.random() < 0.7:
            return field.default
        value = self._picked(field)
        while value is None and not is_nullable:
            value = self._picked(field)
        return value

    def _element(self, field: Field) -> Any:
        assert isinstance(field.type, ArrayOf)
        if isinstance(field.type.element, StructOf):
            pool = POOLS.get(f"{self._key.name}.{field.name}")
            return self._filled(field.type.element.cls, {} if pool is None else self._pick(pool))
        return self._picked(field)

    def _picked(self, field: Field) -> Any:
        pool = self._pool(field)
        if pool is None:
            assert isinstance(field.type, Fixed), f"no pool for {self._key.name}.{field.name}"
            assert field.type.code == "?", f"no pool for {self._key.name}.{field.name}"
            return self._random.random() < 0.4
        return self._own(self._pick(pool))

    def _pool(self, field: Field) -> Pool | None:
        return POOLS.get(f"{self._key.name}.{field.name}", POOLS.get(field.name))

    def _pick(self, pool: Pool) -> Any:
        return pool(self._random) if callable(pool) else self._random.choice(pool)

    def _own(self, value: Any) -> Any:
        """With the names of this history."""
        if isinstance(value, str):
            return value.replace("@", self._prefix)
        return IdOf(value.topic.replace("@", self._prefix)) if isinstance(value, IdOf) else value


def _tame(key: ApiKey, version: int, request: Any, random: Random) -> None:
    """Make of the request one that leaves the broker as the next history expects it, or one that means more."""
    if key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        for resource in request.resources:
            if resource.resource_type == TOPIC and resource.resource_name.isdigit() and random.random() < 0.8:
                resource.resource_type = BROKER
            if resource.resource_type == BROKER and resource.resource_name.startswith("h") and random.random() < 0.8:
                resource.resource_type = TOPIC
            pool = {TOPIC: TOPIC_CONFIGS, BROKER_LOGGER: LOGGER_CONFIGS}.get(resource.resource_type, BROKER_CONFIGS)
            good = {TOPIC: GOOD_TOPIC_CONFIGS, BROKER: GOOD_BROKER_CONFIGS}.get(resource.resource_type, pool)
            for at, entry in enumerate(resource.configs):
                entry.name, entry.value = random.choice(good if at else pool)
        # A broker that is named in two ways hears of two changes, with a time between them when only one has reached it.
        brokers = {each.resource_name for each in request.resources if each.resource_type == BROKER}
        if len({name.strip("+0 ") for name in brokers if name}) < len(brokers - {""}):
            del request.resources[1:]
        if key is ApiKey.ALTER_CONFIGS:
            # Apache Kafka never answers when it cannot tell two resources apart.
            known = {(_known_type(each.resource_type), each.resource_name): each for each in request.resources}
            request.resources = list(known.values())
    elif key is ApiKey.CREATE_TOPICS:
        for topic in request.topics:
            for assignment in topic.assignments:
                assignment.broker_ids = assignment.broker_ids or [0]
            for entry in topic.configs[1:]:
                entry.name, entry.value = random.choice(GOOD_TOPIC_CONFIGS)
    elif key is ApiKey.ALTER_CLIENT_QUOTAS:
        for entry in request.entries:
            for each in entry.entity:
                if each.entity_type == "ip" and each.entity_name:
                    each.entity_name = "10.1.2.3"  # a name would be looked up
            # Of two faults, the one that is named is chosen by hash.
            if any(each.entity_name == "" or each.entity_type not in ("user", "client-id", "ip") for each in entry.entity):
                entry.entity = entry.entity[:1]
            # Default quotas would also apply to the player.
            if any(each.entity_name in (None, "<default>") for each in entry.entity):
                for op in entry.ops:
                    op.value = 1e9
    elif key is ApiKey.DELETE_TOPICS:
        request.topic_names = list(dict.fromkeys(request.topic_names))
        for state in request.topics:
            if state.name is not None and random.random() < 0.7:
                state.topic_id = bytes(16)
        request.topics = list({_name_of(state): state for state in request.topics}.values())
    elif key is ApiKey.METADATA and request.topics:
        is_by_id = random.random() < 0.4
        for topic in request.topics:
            if not is_by_id and random.random() < 0.95:
                topic.topic_id = bytes(16)
            if topic.name is None and topic.topic_id == bytes(16):
                topic.name = ""
    elif key is ApiKey.LEADER_AND_ISR:
        request.topic_states = list({state.topic_name: state for state in request.topic_states}.values())
    elif key is ApiKey.PRODUCE:
        asked = set()
        for topic in request.topic_data:
            topic.partition_data = [each for each in topic.partition_data if (topic.name, each.index) not in asked]
            topic.partition_data = list({each.index: each for each in topic.partition_data}.values())
            asked |= {(topic.name, each.index) for each in topic.partition_data}
    elif key is ApiKey.LIST_OFFSETS and version == 0:
        for topic in request.topics:
            for partition in topic.partitions:
                partition.timestamp = min(partition.timestamp, -1)


def _name_of(state: DeleteTopicState) -> str | None:
    topic_id: object = state.topic_id
    return topic_id.topic if state.name is None and isinstance(topic_id, IdOf) else state.name


def _known_type(resource_type: int) -> int:
    return resource_type if resource_type in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS) else 0
