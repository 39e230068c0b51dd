"""Share consumers of Java and librdkafka get what they get from Apache Kafka 4.4 (`tests/support/share_scenes.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.apache_kafka_4 import needs_apache_kafka_4
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.share_clients import Librdkafka, begin_group
from tests.support.share_members import ShareMember, create_topic, produce
from tests.support.share_scenes import JAVA, RECORDING, SCENES, Scene, play
from tests.support.wire_client import WireClient, a_wire_client

RECORDED = {(each["client"], each["scene"]): each["members"] for each in map(json.loads, RECORDING.read_text().splitlines())}
FIRST_MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
CONFIG: dict[str, Any] = {
    "offsets_topic_num_partitions": 3,
    "share_coordinator_state_topic_num_partitions": 3,
    "group_share_min_record_lock_duration_ms": 1_000,
    "group_share_record_lock_duration_ms": 2_000,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


@pytest.mark.slow
@pytest.mark.parametrize(
    "scene",
    [pytest.param(each, id=f"{each.client} {each.name}", marks=needs_apache_kafka_4 if each.client == JAVA else ()) for each in SCENES],
)
def test_members_get_what_they_get_from_apache_kafka(broker: BrokerProcess, scene: Scene) -> None:
    assert play(scene, broker) == RECORDED[scene.client, scene.name]


def test_members_that_fail_leave_their_records_to_others(broker: BrokerProcess, client: WireClient) -> None:
    begin_group(client, "fail", "fail")
    produce(client, "fail", 5)
    topic_id = create_topic(client, "fail")
    failing = ShareMember(client, topic_id, FIRST_MEMBER, "fail")
    assert failing.acquire(0) == [(0, 4, 1)]
    member = Librdkafka(broker, "fail", "fail")
    assert [message.offset() for message in member.take(5)] == list(range(5)), "the locks have ended"
    member.close()
