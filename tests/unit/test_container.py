"""The variables of Apache Kafka's and Confluent's images, as Kafka modules of testcontainers set them, and what the broker gets of them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import NotAuthenticated
from ottla.client_security import client_security
from ottla.config.broker import BrokerConfig
from ottla.config.loader import load_properties, remarks
from ottla.container import NotABroker, announcements, settled
from ottla.supervisor.layout import free_ports
from tests.support.broker_process import eventually

KRAFT = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:33000,BROKER://4f2d3a:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}


def test_a_node_of_kraft_becomes_a_broker() -> None:
    found, left_out = settled(KRAFT)
    assert left_out == ["KAFKA_CONTROLLER_LISTENER_NAMES", "KAFKA_CONTROLLER_QUORUM_VOTERS", "KAFKA_PROCESS_ROLES"]
    assert found["KAFKA_LISTENERS"] == "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092"
    assert found["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] == "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    config = BrokerConfig(load_properties(environment=found))
    assert config.standalone
    assert remarks(config) == []
    assert [each.listener_name for each in config.listeners.advertised] == ["PLAINTEXT", "BROKER"]


def test_a_controller_alone_is_refused() -> None:
    with pytest.raises(NotABroker, match="asks for a KRaft controller without a broker"):
        settled({"KAFKA_PROCESS_ROLES": "controller"})


def test_a_zookeeper_beside_the_broker_is_not_asked() -> None:
    given = {"KAFKA_ZOOKEEPER_CONNECT": "localhost:2181", "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092"}
    assert settled(given) == (given, [])
    found, left_out = settled(given, has_zookeeper=False)
    assert left_out == ["KAFKA_ZOOKEEPER_CONNECT"]
    assert found == {"KAFKA_LISTENERS": given["KAFKA_LISTENERS"]}


def test_the_host_reaches_a_broker_that_nothing_was_told() -> None:
    assert settled({})[0] == {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092"}
    given = {"KAFKA_LISTENERS": "PLAINTEXT://:9092", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092"}
    assert settled(given)[0] == given
    assert settled({}, is_alone=False)[0] == {}
    own = {"KAFKA_LISTENERS": "INSIDE://:19092,OUTSIDE://:9092"}
    assert settled(own)[0] == own


def test_programs_find_the_line_for_which_they_wait() -> None:
    said = "\n".join(announcements({"KAFKA_BROKER_ID": "1"}))
    for waited_for in (r".*\[KafkaServer id=\d+\] started.*", ".*Kafka Server started.*", ".*Transitioning from RECOVERY to RUNNING.*"):
        assert re.search(waited_for, said)


@contextmanager
def started(directory: Path, variables: Mapping[str, str]) -> Iterator[Path]:
    """A broker with these variables that has said that it is ready; gives the file with what it says."""
    out = directory / "out"
    with out.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.container", "--set", f"log.dirs={directory / 'data'}"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
        )
    try:
        eventually(lambda: "Transitioning from RECOVERY to RUNNING" in out.read_text(), 60)
        yield out
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_it_starts_and_says_so(tmp_path: Path) -> None:
    variables = {**KRAFT, "KAFKA_LISTENERS": re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", KRAFT["KAFKA_LISTENERS"])}
    with started(tmp_path, variables) as out:
        assert "ottla is ready: PLAINTEXT://localhost:33000, BROKER://4f2d3a:9092" in out.read_text()


def test_variables_name_the_users_of_a_listener(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    variables = {
        **KRAFT,
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},BROKER://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},BROKER://4f2d3a:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_LISTENER_NAME_PLAINTEXT_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_LISTENER_NAME_PLAINTEXT_PLAIN_SASL_JAAS_CONFIG": f'{module} user_alice="secret";',
    }

    def found(password: str) -> list[int]:
        file = tmp_path / "client.properties"
        jaas = f'{module} username="alice" password="{password}";'
        file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
        with Cluster(f"127.0.0.1:{port}", security=client_security(file)) as cluster:
            return cluster.broker_ids()

    with started(tmp_path, variables):
        assert found("secret") == [1]
        with pytest.raises(NotAuthenticated, match="Invalid username or password"):
            found("wrong")
