"""Brokers initialize, read, write and delete the state of share partitions, with the answers of Apache Kafka 4.4."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.coordination.internal_topics import SHARE_STATE_TOPIC
from ottla.protocol import features
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.schema.message import Message
from ottla.protocol.uuid import to_text
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "shares" / "state-4.4.json").read_text())
SHARE = 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path, share_coordinator_snapshot_update_records_per_snapshot=3) as started:
        yield started


@pytest.fixture
def topic_id(client: WireClient) -> bytes:
    """The id of a topic with three partitions, when the coordinators of its share partitions are found."""
    created = client.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)], timeout_ms=30_000), 7
    )
    topic_id: bytes = created.topics[0].topic_id
    keys = [f"g:{to_text(topic_id)}:{index}" for index in (-1, 0, 1, 2, 9)]
    eventually(lambda: {each.error_code for each in find(client, keys)} == {ErrorCode.NONE})
    return topic_id


def find(client: WireClient, keys: list[str]) -> list[Any]:
    found: list[Any] = client.ask(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=keys), 6).coordinators
    return found


def read(group: str, topic: bytes, asked: dict[str, Any]) -> Message:
    of = read_share_group_state
    partitions = [of.PartitionData(partition=asked["partition"], leader_epoch=asked["leader_epoch"])]
    return of.ReadShareGroupStateRequest(group_id=group, topics=[of.ReadStateData(topic_id=topic, partitions=partitions)])


def summarize(group: str, topic: bytes, asked: dict[str, Any]) -> Message:
    of = read_share_group_state_summary
    partitions = [of.PartitionData(partition=asked["partition"], leader_epoch=asked["leader_epoch"])]
    return of.ReadShareGroupStateSummaryRequest(group_id=group, topics=[of.ReadStateSummaryData(topic_id=topic, partitions=partitions)])


def initialize(group: str, topic: bytes, asked: dict[str, Any]) -> Message:
    of = initialize_share_group_state
    partitions = [of.PartitionData(partition=asked["partition"], state_epoch=asked["state_epoch"], start_offset=asked["start_offset"])]
    return of.InitializeShareGroupStateRequest(group_id=group, topics=[of.InitializeStateData(topic_id=topic, partitions=partitions)])


def delete(group: str, topic: bytes, asked: dict[str, Any]) -> Message:
    of = delete_share_group_state
    topics = [of.DeleteStateData(topic_id=topic, partitions=[of.PartitionData(partition=asked["partition"])])]
    return of.DeleteShareGroupStateRequest(group_id=group, topics=topics)


def write(group: str, topic: bytes, asked: dict[str, Any]) -> Message:
    of = write_share_group_state
    batches = [
        of.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in asked["state_batches"]
    ]
    fields = {name: asked[name] for name in ("partition", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")}
    topics = [of.WriteStateData(topic_id=topic, partitions=[of.PartitionData(**fields, state_batches=batches)])]
    return of.WriteShareGroupStateRequest(group_id=group, topics=topics)


REQUESTS: dict[str, tuple[Callable[[str, bytes, dict[str, Any]], Message], int]] = {
    "read": (read, 0),
    "summarize": (summarize, 1),
    "initialize": (initialize, 0),
    "delete": (delete, 0),
    "write": (write, 1),
}


def test_answers_are_those_of_apache_kafka(client: WireClient, topic_id: bytes) -> None:
    ids = {"T": topic_id, "O": bytes(range(1, 17)), "Z": bytes(16)}
    for api, asked, expected in GOLDEN["steps"]:
        request_of, version = REQUESTS[api]
        request = request_of(asked.get("group_id", "g"), ids[asked.get("topic", "T")], asked)
        results = client.ask(request, asked.get("version", version)).results
        if expected is None:
            assert results == [], asked
            continue
        (result,) = results[0].partitions
        for name, value in expected.items():
            found = getattr(result, name)
            if name == "state_batches":
                found = [[each.first_offset, each.last_offset, each.delivery_state, each.delivery_count] for each in found]
            if result.error_code != ErrorCode.UNKNOWN_SERVER_ERROR or name != "error_message":
                assert found == value, (api, asked, name)


def test_many_share_partitions_have_an_answer_each_in_order(client: WireClient, topic_id: bytes) -> None:
    of = initialize_share_group_state
    partitions = [of.PartitionData(partition=index, state_epoch=0, start_offset=0) for index in (2, 0, 7, -1, 1)]
    topics = [of.InitializeStateData(topic_id=topic_id, partitions=partitions), of.InitializeStateData(topic_id=bytes(16), partitions=[])]
    results = client.ask(of.InitializeShareGroupStateRequest(group_id="g", topics=topics), 0).results
    assert [(each.partition, each.error_code) for each in results[0].partitions] == [(2, 0), (0, 0), (7, 3), (-1, 42), (1, 0)]
    assert (results[1].topic_id, results[1].partitions) == (bytes(16), [])
    assert client.ask(of.InitializeShareGroupStateRequest(group_id="g"), 0).results == []


def test_the_topic_is_created_with_the_settings_of_apache_kafka(client: WireClient, topic_id: bytes) -> None:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=SHARE_STATE_TOPIC)])
    configs = client.ask(request, 4).results[0].configs
    assert {each.name: each.value for each in configs if each.config_source == 1} == {
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "cleanup.policy": "delete",
        "segment.bytes": "104857600",
        "retention.ms": "-1",
    }


def test_a_key_that_names_no_share_partition_is_invalid(client: WireClient, topic_id: bytes) -> None:
    topic = to_text(topic_id)
    wrong = ["", "g", f":{topic}:0", f" :{topic}:0", f"g:{topic}:x", "g:AAAA:0", f"g:{topic}:9999999999"]
    assert [each.error_code for each in find(client, wrong)] == [ErrorCode.INVALID_REQUEST] * len(wrong)
    assert [each.error_code for each in find(client, [f"a:b:{topic}:0", f"g:{topic}:99"])] == [ErrorCode.NONE] * 2


def test_without_the_feature_there_is_no_coordinator_and_no_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "IMPLEMENTED", {})
    with a_broker_in_process(tmp_path) as broker, a_wire_client(broker.port) as client:
        (found,) = find(client, [f"g:{to_text(bytes(range(16)))}:0"])
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert SHARE_STATE_TOPIC not in broker.services.metadata.topics
