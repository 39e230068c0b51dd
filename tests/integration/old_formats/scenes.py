"""Produces message sets of formats 0 and 1, and fetches them in old and new versions: the same requests to any broker."""

from __future__ import annotations

import random
import struct
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.compression import CompressionCodec, compress
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.golden_replay import exchange
from tests.support.old_messages import Old, message, messages, wrapped

FETCH_VERSIONS = (0, 2, 3, 4, 11, 17)
FIRST_WITH_TOPIC_IDS = 13
TIME = 1_700_000_000_000

Answer = dict[str, Any]


def some_olds(chance: random.Random, magic: int) -> list[Old]:
    """Records with gaps in their offsets, null keys, tombstones, and no or unordered timestamps."""
    found = []
    offset = 0
    for _ in range(chance.randint(1, 12)):
        key = chance.choice([None, b"", b"key", chance.randbytes(chance.randint(1, 40))])
        value = chance.choice([None, b"", b"value " * chance.randint(1, 30), chance.randbytes(chance.randint(1, 200))])
        timestamp = chance.choice([-1, TIME + chance.randint(0, 10_000), TIME]) if magic else -1
        found.append(Old(offset, timestamp, key, value))
        offset += chance.randint(1, 2)
    return found


def produced_sets() -> dict[str, list[tuple[int, bytes]]]:
    """By topic, the (version, records) of its Produce requests."""
    chance = random.Random(29)
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for magic in (0, 1):
        for codec in (CompressionCodec.NONE, CompressionCodec.GZIP, CompressionCodec.SNAPPY, CompressionCodec.LZ4):
            sets = topics[f"old-{magic}-{codec.label}"] = []
            for turn in range(6):
                olds = some_olds(chance, magic)
                if not codec:
                    records = messages(magic, olds)
                elif turn % 2:
                    records = wrapped(magic, codec, olds, 0)
                else:
                    records = wrapped(magic, codec, olds)
                sets.append((2 if magic else turn % 2, records))
    return topics


def refused_sets() -> list[tuple[int, bytes]]:
    """The (version, records) of requests that are odd or bad."""
    one, two = Old(0, TIME, b"k", b"v"), Old(1, TIME + 1, b"k", None)
    gzip = CompressionCodec.GZIP
    return [
        (2, b""),
        (2, message(1, one)[:-1]),
        (2, messages(1, [one, two])[:-1]),
        (2, message(1, one, crc=1)),
        (2, wrapped(1, gzip, [one, two], 1, timestamp=TIME)[:-1] + b"\1"),
        (2, message(0, one) + message(1, two)),
        (2, message(1, one) + message(0, two)),
        (2, bytes(a_batch()) + message(1, two)),
        (2, message(1, one) + bytes(a_batch())),
        (2, 2 * wrapped(1, gzip, [one, two])),
        (2, message(1, one) + wrapped(1, gzip, [one, two])),
        (2, wrapped(1, gzip, [one, two]) + message(1, one)),
        (2, message(1, Old(0, TIME, None, b"no gzip"), gzip)),
        (2, message(1, Old(0, TIME, None, None), gzip)),
        (2, message(1, Old(0, TIME, None, b""), gzip)),
        (2, message(1, Old(0, TIME, None, b""), 4)),
        (2, message(1, Old(0, TIME, None, b""), 5)),
        (2, message(1, one._replace(timestamp=-2))),
        (2, message(1, one, 8)),
        (2, message(1, one._replace(timestamp=-1), 8)),
        (2, wrapped(1, gzip, [one, two], attributes=8)),
        (2, wrapped(1, gzip, [one, two, Old(9, TIME, b"", b"")], 3)),
        (2, wrapped(1, gzip, [one, two], -1)),
        (2, wrapped(1, gzip, [one, two], 1000)),
        (0, wrapped(0, gzip, [one, two], -1)),
        (0, message(0, one)),
        (0, message(1, one)),
        (2, message(0, Old(0, -1, None, bytes(1_100_000)))),
        (2, message(0, Old(0, -1, None, bytes(900_000))) + message(0, Old(0, -1, None, bytes(900_000)))),
        (3, message(1, one)),
        (2, inside(wrapped(1, gzip, [one, two]))),
        (2, inside(message(1, one, crc=1))),
        (2, inside(message(0, one))),
        (2, inside(message(3, one))),
        (2, inside(messages(1, [one, two])[:-1])),
        (2, inside(with_size(message(1, one), 5))),
        (2, inside(with_size(message(1, one), -1))),
        (2, inside(with_size(message(1, one), 1 << 20))),
        (2, inside(messages(1, [two, one]))),
        (2, inside(messages(1, [one, one]))),
        (2, inside(messages(1, [one, two]), 0)),
        (2, with_size(message(1, one), 13)),
        (2, with_size(message(1, one), 1 << 20)),
        (2, with_size(message(1, one), 27)),
        (2, message(1, Old(0, TIME, None, b""), 6)),
        (2, message(3, one)),
        (2, message(1, one)[:-1] + b"\1"),
    ]


def inside(records: bytes, offset: int = 1) -> bytes:
    """A compressed message with these bytes in it."""
    return message(1, Old(offset, TIME, None, compress(CompressionCodec.GZIP, records)), CompressionCodec.GZIP)


def with_size(records: bytes, size: int) -> bytes:
    """The message with another size, which its checksum does not cover."""
    return records[:8] + struct.pack(">i", size) + records[12:]


def topic_names() -> list[str]:
    return [*produced_sets(), "old-odd", "old-compact", "old-timed", "old-recompressed", "old-closed", "old-new"]


TOPIC_CONFIGS = {
    "old-compact": {"cleanup.policy": "compact"},
    "old-timed": {"message.timestamp.before.max.ms": "1000"},
    "old-recompressed": {"compression.type": "gzip"},
    "old-closed": {"message.downconversion.enable": "false"},
}


class Scene:
    """Plays the requests to the broker at a port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ids: dict[str, bytes] = {}

    def create(self, wanted: dict[str, dict[str, str]]) -> None:
        """Create topics of one partition, with these configurations."""
        topics = []
        for name, config in wanted.items():
            configs = [CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
            topics.append(CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs))
        created = exchange(self._port, CreateTopicsRequest(topics=topics, timeout_ms=20_000), ApiKey.CREATE_TOPICS, 7)
        self._ids = {topic.name: topic.topic_id for topic in created.topics}
        eventually(self._has_leaders, what="leaders of all partitions")

    def learn_ids(self, topics: list[str]) -> None:
        """Look up the ids of topics that exist, when the broker knows their leaders."""
        self._ids = dict.fromkeys(topics, bytes(16))
        eventually(self._has_leaders, what="leaders of all partitions")
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
        self._ids = {topic.name: topic.topic_id for topic in exchange(self._port, request, ApiKey.METADATA, 10).topics}

    @property
    def topic_ids(self) -> dict[str, bytes]:
        """The ids of the topics that were created or looked up."""
        return dict(self._ids)

    def alter(self, topic: str, config: dict[str, str]) -> None:
        """Replace the configuration of a topic."""
        configs = [AlterableConfig(name=key, value=value) for key, value in config.items()]
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=configs)
        answer = exchange(self._port, AlterConfigsRequest(resources=[resource]), ApiKey.ALTER_CONFIGS, 1)
        assert answer.responses[0].error_code == 0, answer

    def _has_leaders(self) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in self._ids])
        topics = exchange(self._port, request, ApiKey.METADATA, 9).topics
        return all(not topic.error_code and not topic.partitions[0].error_code for topic in topics)

    def produce(self, topic: str, version: int, records: bytes) -> Answer:
        """Error code and base offset."""
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        found = exchange(self._port, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), ApiKey.PRODUCE, version)
        answer = found.responses[0].partition_responses[0]
        return {"error": answer.error_code, "base_offset": answer.base_offset}

    def fetch(self, topic: str, version: int, offset: int) -> Answer:
        """The fields of the partition in the answer."""
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 24, last_fetched_epoch=-1)
        named = version < FIRST_WITH_TOPIC_IDS
        topics = [FetchTopic(topic=topic if named else "", topic_id=bytes(16) if named else self._ids[topic], partitions=[partition])]
        more: Answer = {"max_bytes": 1 << 24} if version >= 3 else {}
        if version >= 7:
            more["session_epoch"] = -1
        request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics, **more)
        answer = exchange(self._port, request, ApiKey.FETCH, version).responses[0].partitions[0]
        return {
            "error": answer.error_code,
            "high_watermark": answer.high_watermark,
            "last_stable_offset": answer.last_stable_offset,
            "records": (answer.records or b"").hex(),
        }

    def play(self) -> dict[str, Answer]:
        """All requests. The answers by their names."""
        self.create({name: TOPIC_CONFIGS.get(name, {}) for name in topic_names()})
        answers: dict[str, Answer] = {}
        for topic, sets in produced_sets().items():
            for turn, (version, records) in enumerate(sets):
                answers[f"{topic} produce {turn}"] = self.produce(topic, version, records)
            end = answers[f"{topic} produce {len(sets) - 1}"]["base_offset"]
            for version in FETCH_VERSIONS:
                for offset in (0, 1, end // 2, end):
                    answers[f"{topic} fetch {version} from {offset}"] = self.fetch(topic, version, offset)
        for topic in ("old-odd", "old-compact", "old-timed", "old-recompressed"):
            for turn, (version, records) in enumerate(refused_sets()):
                answers[f"{topic} produce {turn}"] = self.produce(topic, version, records)
            for version in FETCH_VERSIONS:
                answers[f"{topic} fetch {version}"] = self.fetch(topic, version, 0)
        self._play_new(answers)
        return answers

    def _play_new(self, answers: dict[str, Answer]) -> None:
        """Batches of new producers for old consumers."""
        for topic in ("old-new", "old-closed"):
            for turn, codec in enumerate(["none", "gzip", "lz4", "snappy", "none"]):
                answers[f"{topic} produce {turn}"] = self.produce(topic, 9, bytes(a_batch(40, codec, value_bytes=50)))
            answers[f"{topic} produce zstd"] = self.produce(topic, 9, bytes(a_batch(40, "zstd", value_bytes=50)))
            for version in (0, 1, 2, 3):
                for offset in (0, 3, 45, 199, 200, 240, 241):
                    answers[f"{topic} fetch {version} from {offset}"] = self.fetch(topic, version, offset)
