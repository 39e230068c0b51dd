"""Java's consumer of Apache Kafka 4.4 with both protocols of groups, and its tools."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import confluent_kafka
import pytest

from tests.support.apache_kafka.java import QUICK_OPTIONS, java_command
from tests.support.apache_kafka_4 import ensure_jars_4, needs_apache_kafka_4, run_tool_4
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.command_line import CommandLine

pytestmark = [*needs_apache_kafka_4, pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "support" / "java" / "ConsumerOfNewProtocol.java"
needs_re2 = pytest.mark.skipif(find_spec("re2") is None, reason="the package google-re2 is not installed")
SECONDS = 90


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), offsets_topic_num_partitions=3) as running:
        yield running


def create_topic(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    CommandLine(broker.bootstrap)("topics", "create", topic, "-p", str(partitions))


def fill(broker: BrokerProcess, topic: str, count: int, partitions: int = 1) -> None:
    """Writes records to all partitions in turn."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(SECONDS) == 0


def consume(broker: BrokerProcess, group: str, kind: str, topics: str, count: int, **properties: str) -> list[str]:
    """The lines of the program."""
    given = [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
    command = java_command(QUICK_OPTIONS, PROGRAM, broker.bootstrap, group, kind, topics, str(count), *given, libs=ensure_jars_4())
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def tool(broker: BrokerProcess, *arguments: str) -> str:
    """The output of kafka-consumer-groups.sh."""
    ended = run_tool_4("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap, *arguments)
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_javas_consumer_reads_commits_and_goes_on(broker: BrokerProcess, protocol: str) -> None:
    topic = f"java-{protocol}"
    create_topic(broker, topic, partitions=3)
    fill(broker, topic, 30, partitions=3)
    lines = consume(broker, topic, "names", topic, 30, group_protocol=protocol)
    assert f"assigned {topic}-0 {topic}-1 {topic}-2" in lines
    assert {line for line in lines if line.startswith(f"{topic} ")} == {f"{topic} {number}" for number in range(30)}
    listed = CommandLine(broker.bootstrap)("groups", "list", "--json").json
    assert [row["type"] for row in listed if row["group"] == topic] == [protocol.capitalize()]
    fill(broker, topic, 2)
    own = {"group_remote_assignor": "range"} if protocol == "consumer" else {}
    again = consume(broker, topic, "names", topic, 2, group_protocol=protocol, group_instance_id="static", **own)
    assert sorted(line for line in again if line.startswith(f"{topic} ")) == [f"{topic} 0", f"{topic} 1"]


@needs_re2
def test_a_regular_expression_of_java_is_evaluated_by_the_broker(broker: BrokerProcess) -> None:
    for topic in ("regex-a", "regex-b", "other-regex-a"):
        create_topic(broker, topic)
        fill(broker, topic, 1)
    lines = consume(broker, "regex", "pattern", "regex-[ab]", 2)
    assert {line for line in lines if line.endswith(" 0")} == {"regex-a 0", "regex-b 0"}
    (refused,) = [line for line in consume(broker, "regex", "pattern", "regex-(", 1) if line.startswith("failed")]
    assert "InvalidRegularExpression" in refused


def test_an_unknown_assignor_is_an_error_of_javas_consumer(broker: BrokerProcess) -> None:
    refused = " ".join(consume(broker, "assignor", "names", "assignor", 1, group_remote_assignor="none"))
    assert "ServerAssignor none is not supported. Supported assignors: uniform, range." in refused


def test_the_tool_shows_resets_and_deletes_a_group(broker: BrokerProcess) -> None:
    create_topic(broker, "shown", partitions=2)
    fill(broker, "shown", 4, partitions=2)
    member = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "shown", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    )
    member.subscribe(["shown"])
    eventually(lambda: member.poll(0.1) is None and len(member.assignment()) == 2, SECONDS)
    assert "shown" in tool(broker, "--list", "--type", "consumer").split()
    assert "shown" not in tool(broker, "--list", "--type", "classic").split()
    state = tool(broker, "--describe", "--group", "shown", "--state", "--verbose").split()
    assert [word for word in ("Stable", "uniform") if word in state] == ["Stable", "uniform"]
    members = tool(broker, "--describe", "--group", "shown", "--members", "--verbose")
    assert "shown:0,1" in members
    refused = tool(broker, "--delete", "--group", "shown")
    assert "GroupNotEmptyException" in refused
    member.close()
    reset = tool(broker, "--reset-offsets", "--group", "shown", "--topic", "shown", "--to-offset", "1", "--execute")
    rows = sorted(line.split()[1:] for line in reset.splitlines() if line.startswith("shown"))
    assert rows == [["shown", "0", "1"], ["shown", "1", "1"]]
    assert "Deletion of requested consumer groups ('shown') was successful" in tool(broker, "--delete", "--group", "shown")
    assert json.dumps("shown") not in tool(broker, "--list")
