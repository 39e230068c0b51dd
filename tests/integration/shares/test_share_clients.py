"""Share consumers of Java and librdkafka: each record is accepted once, or delivered again until it is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.apache_kafka.java import QUICK_OPTIONS, java_command
from tests.support.apache_kafka_4 import ensure_jars_4, needs_apache_kafka_4, run_tool_4
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.share_clients import SECONDS, Librdkafka, begin_group
from tests.support.share_members import ShareMember, create_topic, produce
from tests.support.wire_client import WireClient, a_wire_client

PROGRAM = Path(__file__).parents[2] / "support" / "java" / "ShareMember.java"
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

    def test_offsets_of_groups_are_shown_moved_and_deleted_by_the_tools(self, broker: BrokerProcess, client: WireClient) -> None:
        begin_group(client, "moved", "moved")
        produce(client, "moved", 9)
        assert run_java(broker, "moved", "moved", "implicit", 9) == [f"{offset} 1 ACCEPT" for offset in range(9)]

        def ask(*options: str) -> list[list[str]]:
            tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
            found = run_tool_4(tool, "--bootstrap-server", broker.bootstrap, "--group", "moved", *options)
            return [line.split() for line in found.stdout.splitlines() if line.strip()]

        assert ask("--describe", "--offsets")[-1] == ["moved", "moved", "0", "0", "0"], "the start follows with the next change"
        assert ask("--reset-offsets", "--topic", "moved", "--to-earliest", "--execute")[-1] == ["moved", "moved", "0", "0"]
        assert ask("--describe", "--offsets")[-1] == ["moved", "moved", "0", "0", "9"]
        assert ask("--delete-offsets", "--topic", "moved")[-1] == ["moved", "Successful"]
        assert "moved" not in [line[0] for line in ask("--describe", "--offsets")]


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
