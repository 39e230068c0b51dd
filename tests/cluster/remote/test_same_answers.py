"""Apache Kafka 3.9 and Ottla, each with a directory of its own, are given the same history: they answer alike, and write alike metadata."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.reader import Record
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka_tiered import tiered_config
from tests.support.broker_process import a_broker, eventually
from tests.support.wire_client import WireClient, a_wire_client

pytestmark = [pytest.mark.java, pytest.mark.cluster, pytest.mark.slow]

BATCHES, PER_BATCH = 40, 5
END = BATCHES * PER_BATCH
T0 = 1_700_000_000_000
TOPIC = {
    "remote.storage.enable": "true",
    "segment.bytes": "4000",
    "index.interval.bytes": "100",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
CHECKS = {"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "300"}
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = range(-1, -6, -1)
DELETED_TO = 23
"""Within the second batch of a remote segment."""
FIRST_WITH_REPLICA_STATE = 15
EVENT_TIMESTAMP = {0: 16 + 1 + 8 + 8 + 4 + 8, 1: 16 + 1 + 4}
"""Its place in a record of the metadata behind the beginning of the segment's uuid, by the kind of the record."""


class Broker(NamedTuple):
    """A broker with the topic `t`, whose closed segments are in its store only."""

    client: WireClient
    bootstrap: str
    topic_id: bytes
    store: Path


def timestamp_of(batch: int, at: int) -> int:
    """Every fourth batch is older than that before it."""
    return T0 + 1000 * (batch - 6 if batch % 4 == 3 else batch) + 10 * at


def fill(client: WireClient) -> None:
    for batch in range(BATCHES):
        records = [
            Record(at, timestamp_of(batch, at), b"key", b"%05d" % (batch * PER_BATCH + at) + b"." * 150, ()) for at in range(PER_BATCH)
        ]
        data = PartitionProduceData(index=0, records=memoryview(build_batch(records)))
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=[data])])
        (answer,) = client.ask(request, 9).responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (0, batch * PER_BATCH)


def offsets_for(client: WireClient, timestamp: int, version: int = 9) -> dict[str, Any]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    (found,) = client.ask(request, version).topics[0].partitions
    return {"error": ErrorCode.of(found.error_code).name, "offset": found.offset, "time": found.timestamp, "epoch": found.leader_epoch}


@contextmanager
def prepared(bootstrap: str, port: int, store: Path) -> Iterator[Broker]:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its end would be that of the request
    admin.create_topics([NewTopic("t", 1, 1, config=TOPIC)])["t"].result(60)
    with a_wire_client(port) as client:

        def topic_id() -> bytes | None:
            found = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False), 12).topics[0]
            return found.topic_id if not found.error_code and found.partitions[0].leader_id >= 0 else None

        found = eventually(topic_id, what="a leader")
        assert isinstance(found, bytes)
        fill(client)
        eventually(lambda: offsets_for(client, EARLIEST_LOCAL)["offset"] > END * 3 // 4, what="closed segments are in the store only")
        eventually(
            lambda: offsets_for(client, EARLIEST_LOCAL)["offset"] == offsets_for(client, LATEST_TIERED)["offset"] + 1,
            what="all that was copied is gone here",
        )
        yield Broker(client, bootstrap, found, store)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    """Apache's and Ottla's."""
    folder = tmp_path_factory.mktemp("same")
    configs: list[Mapping[str, str]] = []
    for name in ("apache-store", "store"):
        (folder / name).mkdir()
        configs.append({**tiered_config(folder / name), **CHECKS})
    with (
        ApacheKafka(folder / "apache", 1, configs[0]) as kafka,
        a_broker(folder / "ottla", **configs[1], broker_id=kafka.broker_ids[0]) as ottla,
        prepared(kafka.bootstrap, kafka.port(), folder / "apache-store") as of_apache,
        prepared(ottla.bootstrap, ottla.port, folder / "store") as ours,
    ):
        yield of_apache, ours


def fetched(broker: Broker, offset: int, version: int, replica_id: int = -1) -> dict[str, Any]:
    """The answer once there are records or an error: a read of the store may take more than one fetch."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=replica_id if version < FIRST_WITH_REPLICA_STATE else -1,
        replica_state=ReplicaState(replica_id=replica_id if version >= FIRST_WITH_REPLICA_STATE else -1),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", topic_id=broker.topic_id, partitions=[partition])],
    )

    def answer() -> Any:
        (found,) = broker.client.ask(request, version).responses[0].partitions
        return found if found.error_code or found.records or offset >= END else None

    found: Any = eventually(answer, what="records")
    return {
        "error": ErrorCode.of(found.error_code).name,
        "high watermark": found.high_watermark,
        "last stable offset": found.last_stable_offset,
        "log start": found.log_start_offset,
        "records": bytes(found.records or b""),
    }


def check_offsets(apache: Broker, ours: Broker) -> None:
    for version in range(1, 10):
        for kind in (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED):
            assert offsets_for(ours.client, kind, version) == offsets_for(apache.client, kind, version), (kind, version)
    for time in range(T0 - 7000, T0 + 1000 * BATCHES + 100, 250):
        assert offsets_for(ours.client, time) == offsets_for(apache.client, time), time - T0


def checked(client: WireClient, configs: dict[str, str]) -> list[tuple[str, str | None]]:
    """The answers to a topic with these keys, and to a change of `t`; neither has an effect."""
    given = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=given)
    (created,) = client.ask(CreateTopicsRequest(topics=[topic], validate_only=True), 7).topics
    changes = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()]
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=changes)
    (changed,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1).responses
    return [(ErrorCode.of(each.error_code).name, each.error_message) for each in (created, changed)]


RULES: list[dict[str, str]] = [
    *({"remote.storage.enable": "true", "cleanup.policy": policy} for policy in ("compact", "compact,delete", "delete,compact", "")),
    *({"remote.storage.enable": "true", key: "true"} for key in ("remote.log.copy.disable", "remote.log.delete.on.disable")),
    *(
        {"remote.storage.enable": "true", f"retention.{unit}": total, f"local.retention.{unit}": local}
        for unit, totals in (("ms", ("-1", "0", "1000")), ("bytes", ("-2", "-1", "0", "1000")))
        for total in totals
        for local in ("-3", "-2", "-1", "0", "999", "1000", "1001", "x", "")
    ),
]


def test_the_rules_for_topics_are_the_same(brokers: tuple[Broker, Broker]) -> None:
    apache, ours = brokers
    refused = 0
    for configs in RULES:
        answers = checked(ours.client, configs)
        assert answers == checked(apache.client, configs), configs
        refused += answers[0][0] != "NONE"
    assert 20 < refused < len(RULES) - 20


def delete_records(brokers: tuple[Broker, Broker], end: int) -> None:
    for broker in brokers:
        deleted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=end)])
        (answer,) = broker.client.ask(DeleteRecordsRequest(topics=[deleted], timeout_ms=30_000), 2).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (0, end)


def test_offsets_and_records_are_the_same_before_and_after_records_are_deleted(brokers: tuple[Broker, Broker]) -> None:
    apache, ours = brokers
    check_offsets(apache, ours)
    for offset in (-1, *range(0, END + 2, 3), END, END + 1):
        for version in (11, 17):
            assert fetched(ours, offset, version) == fetched(apache, offset, version), (offset, version)
    for offset in (-1, 0, END // 2, END - 25, END, END + 1):
        for version in (4, 11, 13, 14, 15, 17):
            assert fetched(ours, offset, version, 1) == fetched(apache, offset, version, 1), (offset, version)
    for epoch in (-1, 0, 1):
        answers = []
        for broker in brokers:
            partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])])
            (found,) = broker.client.ask(request, 4).topics[0].partitions
            answers.append((found.error_code, found.leader_epoch, found.end_offset))
        assert answers[0] == answers[1], epoch
    delete_records(brokers, DELETED_TO)
    for kind in (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED):
        assert offsets_for(ours.client, kind) == offsets_for(apache.client, kind), kind
    for offset in (0, DELETED_TO - 1, DELETED_TO, DELETED_TO + 1, END):
        assert fetched(ours, offset, 17) == fetched(apache, offset, 17), offset


def metadata_of(broker: Broker) -> list[bytes]:
    """The records about the topic in their order, without what is chance or chosen by the store."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    partitions = consumer.list_topics(METADATA_TOPIC, 30).topics[METADATA_TOPIC].partitions
    consumer.assign([TopicPartition(METADATA_TOPIC, number, OFFSET_BEGINNING) for number in partitions])
    ends = {number: consumer.get_watermark_offsets(TopicPartition(METADATA_TOPIC, number), 30)[1] for number in partitions}
    found: list[bytes] = []

    def read() -> bool:
        found.extend(message.value() for message in consumer.consume(1000, 0.5) if message.error() is None)
        return len(found) >= sum(ends.values())

    eventually(read, what="the metadata")
    consumer.close()
    uuids: dict[bytes, bytes] = {}
    return [without_chance(value, broker.topic_id, uuids) for value in found if broker.topic_id in value]


def without_chance(value: bytes, topic_id: bytes, uuids: dict[bytes, bytes]) -> bytes:
    kind = value[1]
    at = value.index(topic_id) + 16 + 4 + 1  # behind the topic id, the partition, and the end of their struct
    uuid = value[at : at + 16]
    number = uuids.setdefault(uuid, struct.pack(">16s", b"%d" % len(uuids)))
    event = at + EVENT_TIMESTAMP[kind]
    rest = value[event + 8 :] if kind == 0 else b"\0" + value[-2:]  # an update has custom metadata, which each store chooses
    return (value[:at] + number + value[at + 16 : event] + bytes(8) + rest).replace(topic_id, bytes(16))


def test_the_records_of_the_metadata_are_the_same_bytes_but_for_custom_metadata(brokers: tuple[Broker, Broker]) -> None:
    apache, ours = (metadata_of(broker) for broker in brokers)
    copied = [[value for value in found if value[1] == 0 or value[-2] == 1] for found in (apache, ours)]
    assert len(copied[0]) >= 2 * 5
    assert copied[0] == copied[1]


def test_the_last_copied_offset_is_the_same_when_all_copies_are_deleted(brokers: tuple[Broker, Broker]) -> None:
    kinds = (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)
    local_start = offsets_for(brokers[1].client, EARLIEST_LOCAL)["offset"]
    for end in (local_start, local_start + 1, END):
        delete_records(brokers, end)
        eventually(lambda: not any(path for broker in brokers for path in broker.store.rglob("t-0-*/*.log")), what="no copy")
        answers = [{kind: offsets_for(broker.client, kind) for kind in kinds} for broker in brokers]
        assert answers[1] == answers[0], end
        assert answers[0][LATEST_TIERED]["offset"] == local_start - 1
