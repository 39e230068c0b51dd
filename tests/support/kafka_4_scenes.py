"""Plays the scenes of tests/recorded/kafka-4.4.jsonl: asks a broker in the versions that need no feature, and makes the answers comparable.

`python -m tests.support.kafka_4_scenes PORT` plays the scenes against an Apache Kafka 4.4 with broker 1 alone and no topics,
and writes the recording. `tests/integration/test_kafka_4_answers.py` plays them against Ottla.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_configs import AlterableConfig as WholeConfig
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, IncrementalAlterConfigsRequest
from ottla.protocol.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema.message import Message
from ottla.protocol.uuid import ZERO_UUID
from tests.support.batches import a_batch
from tests.support.broker_process import eventually
from tests.support.golden_replay import comparable
from tests.support.wire_client import WireClient, a_wire_client

RECORDING = Path(__file__).parents[1] / "recorded" / "kafka-4.4.jsonl"
TOPIC, OTHER, GROUP = "scene", "other", "scene-group"
UNKNOWN_ID = b"an unknown topic"
TOPICS, CLIENT_METRICS, GROUPS = 2, 16, 32
SET, DELETE, APPEND = 0, 1, 2
DESCRIBED = {"consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "interval.ms", "match", "metrics"}
"""The configurations that are compared. Brokers of 4.4 also have those of Streams groups, and other defaults of share groups."""


class Scene(NamedTuple):
    """A request in a version. `make` gets the ids of the topics by name."""

    name: str
    version: int
    make: Callable[[dict[str, bytes]], Message]


def _fixed(request: Message) -> Callable[[dict[str, bytes]], Message]:
    """Makes this request, whatever the ids are."""
    return lambda _: request


def scenes() -> Iterator[Scene]:
    """All scenes, in the order in which they are played: some change what later ones see."""
    yield from _of_records()
    yield from _of_the_cluster()
    yield from _of_groups()
    yield from _of_configurations()


def _of_the_cluster() -> Iterator[Scene]:
    def metadata(*topics: Callable[[dict[str, bytes]], MetadataRequestTopic]) -> Callable[[dict[str, bytes]], Message]:
        return lambda ids: MetadataRequest(topics=[topic(ids) for topic in topics], allow_auto_topic_creation=False)

    yield Scene("metadata by name", 13, metadata(lambda _: MetadataRequestTopic(name=TOPIC)))
    yield Scene("metadata by id", 13, metadata(lambda ids: MetadataRequestTopic(name=None, topic_id=ids[TOPIC])))
    yield Scene("metadata of an unknown name", 13, metadata(lambda _: MetadataRequestTopic(name="unknown")))
    yield Scene("metadata of an unknown id", 13, metadata(lambda _: MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID)))
    for kind in (0, 1, 2, 3):
        yield Scene(f"endpoints of kind {kind}", 2, _fixed(DescribeClusterRequest(endpoint_type=kind)))
    yield Scene("with fenced brokers", 2, lambda _: DescribeClusterRequest(include_fenced_brokers=True))
    for name, allowed, replicas in (
        ("the same replicas", True, [1]),
        ("the same factor", False, [1]),
        ("an unknown broker", False, [2]),
        ("another factor", True, [1, 2]),
        ("another factor, which is forbidden", False, [1, 2]),
        ("no replicas", True, []),
        ("nothing to cancel", False, None),
    ):
        move = ReassignableTopic(name=TOPIC, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
        request = AlterPartitionReassignmentsRequest(topics=[move], allow_replication_factor_change=allowed)
        yield Scene(f"reassignment to {name}", 1, _fixed(request))
    log_dirs = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=TOPIC, partitions=[0, 1])])
    yield Scene("log directories", 5, lambda _: log_dirs)
    for name, pattern in (("no", None), ("an empty", ""), ("a wrong", "[")):
        yield Scene(f"transactions by {name} pattern", 2, _fixed(ListTransactionsRequest(transactional_id_pattern=pattern)))


def _of_records() -> Iterator[Scene]:
    def produce(name: str, *topics: tuple[Callable[[dict[str, bytes]], bytes], int]) -> Scene:
        def make(ids: dict[str, bytes]) -> Message:
            data = [
                TopicProduceData(topic_id=of(ids), partition_data=[PartitionProduceData(index=index, records=bytes(a_batch()))])
                for of, index in topics
            ]
            return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)

        return Scene(name, 13, make)

    yield produce("produce by id", (lambda ids: ids[TOPIC], 0), (lambda ids: ids[OTHER], 0))
    yield produce("produce to an unknown id", (lambda _: UNKNOWN_ID, 0))
    yield produce("produce to no id", (lambda _: ZERO_UUID, 0))
    yield produce("produce to an unknown partition", (lambda ids: ids[TOPIC], 7))
    yield produce("produce to a known and an unknown id", (lambda ids: ids[TOPIC], 1), (lambda _: UNKNOWN_ID, 0))

    def fetch(name: str, of: Callable[[dict[str, bytes]], bytes], **more: Any) -> Scene:
        def make(ids: dict[str, bytes]) -> Message:
            partition = FetchPartition(partition=0, partition_max_bytes=1 << 20, **more)
            return FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[FetchTopic(topic_id=of(ids), partitions=[partition])])

        return Scene(name, 18, make)

    yield fetch("fetch by id", lambda ids: ids[TOPIC])
    yield fetch("fetch with a high watermark", lambda ids: ids[TOPIC], high_watermark=0)
    yield fetch("fetch of an unknown id", lambda _: UNKNOWN_ID)
    for timestamp in range(-1, -8, -1):
        for version in (10, 11):
            wanted = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
            request = ListOffsetsRequest(replica_id=-1, topics=[wanted], timeout_ms=1000)
            yield Scene(f"offset of {timestamp} in {version}", version, _fixed(request))


def _of_groups() -> Iterator[Scene]:
    def commit(name: str, *topics: Callable[[dict[str, bytes]], bytes], index: int = 0) -> Scene:
        def make(ids: dict[str, bytes]) -> Message:
            partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="m")
            return OffsetCommitRequest(
                group_id=GROUP, topics=[OffsetCommitRequestTopic(topic_id=of(ids), partitions=[partition]) for of in topics]
            )

        return Scene(name, 10, make)

    def fetch(name: str, *topics: Callable[[dict[str, bytes]], bytes], everything: bool = False, group: str = GROUP) -> Scene:
        def make(ids: dict[str, bytes]) -> Message:
            wanted = [OffsetFetchRequestTopics(topic_id=of(ids), partition_indexes=[0, 1]) for of in topics]
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None if everything else wanted)])

        return Scene(name, 10, make)

    yield commit("commit by id", lambda ids: ids[TOPIC], lambda ids: ids[OTHER])
    yield commit("commit to an unknown id", lambda _: UNKNOWN_ID)
    yield commit("commit to no id", lambda _: ZERO_UUID)
    yield commit("commit to a known and an unknown id", lambda _: UNKNOWN_ID, lambda ids: ids[TOPIC])
    yield commit("commit to an unknown partition", lambda ids: ids[TOPIC], index=7)
    yield fetch("offsets by id", lambda ids: ids[TOPIC])
    yield fetch("offsets of an unknown id", lambda _: UNKNOWN_ID, lambda ids: ids[TOPIC])
    yield fetch("offsets of no id", lambda _: ZERO_UUID)
    yield fetch("all offsets", everything=True)
    yield fetch("offsets of an unknown group", lambda ids: ids[TOPIC], group="unknown")
    yield Scene("groups", 6, lambda _: DescribeGroupsRequest(groups=[GROUP, "unknown", ""]))
    yield Scene("groups before version 6", 5, lambda _: DescribeGroupsRequest(groups=[GROUP, "unknown"]))
    yield Scene("deletion of groups", 3, lambda _: DeleteGroupsRequest(groups_names=["unknown", "", GROUP]))
    yield Scene("a deleted group", 6, lambda _: DescribeGroupsRequest(groups=[GROUP]))


def _of_configurations() -> Iterator[Scene]:
    def change(name: str, kind: int, resource: str, *values: tuple[str, int, str | None]) -> Scene:
        configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in values]
        resources = [ChangedResource(resource_type=kind, resource_name=resource, configs=configs)]
        return Scene(name, 1, lambda _: IncrementalAlterConfigsRequest(resources=resources))

    def describe(name: str, *resources: tuple[int, str], keys: list[str] | None = None) -> Scene:
        wanted = [DescribeConfigsResource(resource_type=kind, resource_name=of, configuration_keys=keys) for kind, of in resources]
        return Scene(name, 4, lambda _: DescribeConfigsRequest(resources=wanted, include_synonyms=True))

    def resources(name: str, version: int, *kinds: int) -> Scene:
        return Scene(name, version, lambda _: ListConfigResourcesRequest(resource_types=list(kinds)))

    yield describe("a group without configuration", (GROUPS, "g"))
    yield describe("client metrics that do not exist", (CLIENT_METRICS, "m"))
    yield describe("resources without a name", (GROUPS, ""), (CLIENT_METRICS, ""))
    yield describe("an unknown kind beside a topic", (99, "x"), (TOPICS, TOPIC), keys=["cleanup.policy"])
    yield change(
        "a group is configured", GROUPS, "g", ("consumer.session.timeout.ms", SET, "50000"), ("consumer.heartbeat.interval.ms", SET, "6000")
    )
    yield change("a group with an unknown key", GROUPS, "g", ("no.such.key", SET, "1"))
    yield change("a group with a text for a number", GROUPS, "g", ("consumer.session.timeout.ms", SET, "x"))
    yield change("a group with a session that is too short", GROUPS, "g", ("consumer.session.timeout.ms", SET, "1"))
    yield change("a group with a session that is too long", GROUPS, "g", ("consumer.session.timeout.ms", SET, "999999999"))
    yield change(
        "a group with sessions as short as heartbeats",
        GROUPS,
        "g",
        ("consumer.heartbeat.interval.ms", SET, "15000"),
        ("consumer.session.timeout.ms", SET, "45000"),
    )
    yield change("a group without a name", GROUPS, "", ("consumer.session.timeout.ms", SET, "50000"))
    yield change("a group with a list", GROUPS, "g", ("consumer.session.timeout.ms", APPEND, "1"))
    yield change("a value of a group without a value", GROUPS, "g", ("consumer.session.timeout.ms", SET, None))
    yield describe("the configured group", (GROUPS, "g"))
    metrics = ("metrics", SET, "org.apache.kafka.consumer.,org.apache.kafka.producer.")
    yield change("client metrics", CLIENT_METRICS, "m", metrics, ("interval.ms", SET, "5000"), ("match", SET, "client_software_name=.*"))
    yield change("client metrics with an unknown key", CLIENT_METRICS, "m", ("no.such.key", SET, "1"))
    yield change("client metrics with a short interval", CLIENT_METRICS, "m", ("interval.ms", SET, "99"))
    yield change("client metrics with a long interval", CLIENT_METRICS, "m", ("interval.ms", SET, "3600001"))
    yield change("client metrics with a wrong match", CLIENT_METRICS, "m", ("match", SET, "no_such_key=.*"))
    yield change("client metrics with a wrong pattern", CLIENT_METRICS, "m", ("match", SET, "client_id=["))
    yield change("client metrics with half a match", CLIENT_METRICS, "m", ("match", SET, "client_id"))
    yield change("more metrics", CLIENT_METRICS, "m", ("metrics", APPEND, "org.apache.kafka.admin."))
    yield describe("the client metrics", (CLIENT_METRICS, "m"))
    yield change("an unknown kind", 99, "x", ("a", SET, "b"))
    both = [
        ChangedResource(resource_type=99, resource_name="x", configs=[AlterableConfig(name="a", value="b")]),
        ChangedResource(resource_type=TOPICS, resource_name=TOPIC, configs=[AlterableConfig(name="retention.ms", value="1000000")]),
    ]
    yield Scene("an unknown kind beside a topic is changed", 1, lambda _: IncrementalAlterConfigsRequest(resources=both))
    whole = AlterConfigsResource(
        resource_type=GROUPS, resource_name="h", configs=[WholeConfig(name="consumer.session.timeout.ms", value="51000")]
    )
    yield Scene("the whole configuration of a group", 2, lambda _: AlterConfigsRequest(resources=[whole]))
    yield resources("resources of version 0", 0)
    yield resources("resources of some kinds", 1, GROUPS, CLIENT_METRICS)
    yield resources("topics", 1, TOPICS)
    yield resources("brokers and loggers", 1, 4, 8)
    yield resources("an unknown kind of resources", 1, 99)
    yield resources("all resources", 1)
    yield change("a value of a group is deleted", GROUPS, "g", ("consumer.heartbeat.interval.ms", DELETE, None))
    yield change(
        "client metrics are deleted", CLIENT_METRICS, "m", ("interval.ms", DELETE, None), ("metrics", DELETE, None), ("match", DELETE, None)
    )


def play(port: int) -> Iterator[tuple[str, Any]]:
    """The name of each scene and what was answered, without what no two brokers have in common."""
    with a_wire_client(port) as client:
        ids = _prepared(client)
        names = {topic_id: f"id of {name}" for name, topic_id in ids.items()} | {ZERO_UUID: "no id", UNKNOWN_ID: "unknown id"}
        for scene in scenes():
            try:
                answer = client.ask(scene.make(ids), scene.version)
            except ConnectionError:
                yield scene.name, "closed"
                return
            rewrite = partial(_common, names, scene.name.startswith("reassignment"))  # whose texts are those of 3.9 with ZooKeeper
            yield scene.name, comparable(answer, rewrite)


def _prepared(client: WireClient) -> dict[str, bytes]:
    """The ids of the new topics, once their leader and the group's coordinator are known."""
    wanted = [
        CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1),
        CreatableTopic(name=OTHER, num_partitions=1, replication_factor=1),
    ]
    made = client.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7)
    assert all(topic.error_code == 0 for topic in made.topics), made
    asked = [MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name=OTHER)]
    eventually(lambda: all(topic.error_code == 0 for topic in client.ask(MetadataRequest(topics=asked), 12).topics))
    first = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=bytes(a_batch()))])
    client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[first]), 9)
    coordinator = FindCoordinatorRequest(coordinator_keys=[GROUP])
    eventually(lambda: client.ask(coordinator, 4).coordinators[0].error_code == 0)
    loading = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    eventually(lambda: client.ask(DescribeGroupsRequest(groups=[GROUP]), 5).groups[0].error_code not in loading)
    return {topic.name: topic.topic_id for topic in made.topics}


def _common(names: dict[bytes, str], has_own_texts: bool, name: str, value: Any) -> Any:
    match name:
        case "error_message" if has_own_texts:
            return None
        case "topic_id":
            return names.get(value, "another id")
        case "cluster_id" if value:
            return "some cluster"
        case "port" | "total_bytes" | "usable_bytes" if value > 0:
            return "some number"
        case "log_dir":
            return "some directory"
        case "records":
            return len(value or b"")
        case "configs":
            return sorted((each for each in value if each["name"] in DESCRIBED), key=repr)
        case "results" | "responses" | "topics" | "partitions" | "groups" | "config_resources" | "brokers":
            return sorted(value, key=repr)
    return value


def main() -> None:
    """Write the recording."""
    lines = [json.dumps({"scene": name, "answer": answer}) for name, answer in play(int(sys.argv[1]))]
    RECORDING.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} answers in {RECORDING}")


if __name__ == "__main__":
    main()
