"""Share consumers of Java and librdkafka: each record is accepted once, or delivered again until it is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.apache_kafka.java import QUICK_OPTIONS, java_command
from tests.support.apache_kafka_4 import ensure_jars_4, needs_apache_kafka_4, run_tool_4
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.share_members import ShareMember, create_topic, produce
from tests.support.wire_client import WireClient, a_wire_client

PROGRAM = Path(__file__).parents[2] / "support" / "java" / "ShareMember.java"
SECONDS = 90
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


def begin_group(client: WireClient, group: str, topic: str) -> None:
    """Create a topic, and let the group begin to read it at its start: a first member fetches before there are records."""
    topic_id = create_topic(client, topic)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    eventually(lambda: not client.ask(find, 4).coordinators[0].error_code, 30)

    def beat(epoch: int) -> Any:
        request = ShareGroupHeartbeatRequest(group_id=group, member_id=FIRST_MEMBER, member_epoch=epoch, subscribed_topic_names=[topic])
        return client.ask(request, 1)

    def has_partitions() -> bool:
        response = beat(0)
        return bool(not response.error_code and response.assignment.topic_partitions)

    eventually(has_partitions, 30)
    member = ShareMember(client, topic_id, FIRST_MEMBER, group)
    eventually(lambda: member.fetch_all(0).responses[0].partitions[0].error_code == 0 or setattr(member, "epoch", 0), 30)
    member.acknowledge_all({}, epoch=-1)
    assert beat(-1).error_code == 0


def run_java(broker: BrokerProcess, group: str, topic: str, mode: str, count: int) -> list[str]:
    command = java_command(QUICK_OPTIONS, PROGRAM, broker.bootstrap, group, topic, mode, str(count), libs=ensure_jars_4())
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.slow
class TestJava:
    pytestmark = needs_apache_kafka_4

    def test_javas_share_consumer_accepts_what_it_has_polled(self, broker: BrokerProcess, client: WireClient) -> None:
        begin_group(client, "implicit", "implicit")
        for _ in range(3):
            produce(client, "implicit", 10)
        assert run_java(broker, "implicit", "implicit", "implicit", 30) == [f"{offset} 1 ACCEPT" for offset in range(30)]
        produce(client, "implicit", 1)
        assert run_java(broker, "implicit", "implicit", "implicit", 1) == ["30 1 ACCEPT"]

    def test_javas_share_consumer_accepts_releases_and_rejects_single_records(self, broker: BrokerProcess, client: WireClient) -> None:
        begin_group(client, "explicit", "explicit")
        produce(client, "explicit", 9)
        expected = [f"{offset} 1 {('ACCEPT', 'RELEASE', 'REJECT')[offset % 3]}" for offset in range(9)]
        expected += [f"{offset} 2 ACCEPT" for offset in (1, 4, 7)]
        assert run_java(broker, "explicit", "explicit", "explicit", 9) == expected

    def test_javas_share_consumer_renews_a_lock(self, broker: BrokerProcess, client: WireClient) -> None:
        begin_group(client, "renew", "renew")
        produce(client, "renew", 1)
        assert run_java(broker, "renew", "renew", "renew", 1) == ["0 1 ACCEPT"]

    def test_groups_are_shown_by_the_tools(self, broker: BrokerProcess, client: WireClient) -> None:
        begin_group(client, "shown", "shown")
        tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
        listed = run_tool_4(tool, "--bootstrap-server", broker.bootstrap, "--list")
        assert "shown" in listed.stdout.split()
        described = run_tool_4(tool, "--bootstrap-server", broker.bootstrap, "--describe", "--group", "shown", "--state")
        assert "Empty" in described.stdout


class Librdkafka:
    """A share consumer of librdkafka, which accepts what it has polled."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, mode: str = "implicit") -> None:
        self._consumer = confluent_kafka.ShareConsumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": mode}
        )
        self._consumer.subscribe([topic])

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        end = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < end:
            found.extend(self._consumer.poll(0.5))
        return found

    def acknowledge(self, message: Any, kind: Any) -> None:
        self._consumer.acknowledge(message, kind)

    def close(self) -> None:
        self._consumer.commit_sync()
        self._consumer.close()


def test_librdkafkas_share_consumer_accepts_what_it_has_polled(broker: BrokerProcess, client: WireClient) -> None:
    begin_group(client, "rd", "rd")
    produce(client, "rd", 20)
    member = Librdkafka(broker, "rd", "rd")
    assert [message.offset() for message in member.take(20)] == list(range(20))
    member.close()
    produce(client, "rd", 2)
    member = Librdkafka(broker, "rd", "rd")
    assert [message.offset() for message in member.take(2)] == [20, 21]
    member.close()


def test_members_that_fail_leave_their_records_to_others(broker: BrokerProcess, client: WireClient) -> None:
    begin_group(client, "fail", "fail")
    produce(client, "fail", 5)
    topic_id = create_topic(client, "fail")
    failing = ShareMember(client, topic_id, FIRST_MEMBER, "fail")
    assert failing.acquire(0) == [(0, 4, 1)]
    member = Librdkafka(broker, "fail", "fail")
    assert [message.offset() for message in member.take(5)] == list(range(5)), "the locks have ended"
    member.close()
