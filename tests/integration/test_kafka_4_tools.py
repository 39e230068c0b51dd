"""Tools of Apache Kafka 4.4 for the resources that 3.9 does not have with ZooKeeper: groups and client metrics."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka_4 import needs_apache_kafka_4, run_tool_4
from tests.support.broker_process import BrokerProcess, a_broker

pytestmark = [*needs_apache_kafka_4, pytest.mark.slow]

CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("kafka-4-tools")
    with a_broker(directory) as running:
        yield running


def said(broker: BrokerProcess, tool: str, *arguments: str) -> list[str]:
    ended = run_tool_4(tool, "--bootstrap-server", broker.bootstrap, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [" ".join(line.split()) for line in ended.stdout.splitlines() if line.strip()]


def test_client_metrics_are_created_listed_described_and_deleted(broker: BrokerProcess) -> None:
    created = said(broker, CLIENT_METRICS, "--alter", "--name", "m", "--metrics", "org.apache.kafka.consumer.", "--interval", "5000")
    assert created == ["Altered client metrics config for m."]
    assert said(broker, CLIENT_METRICS, "--list") == ["m"]
    described = said(broker, CLIENT_METRICS, "--describe", "--name", "m")
    assert described[0] == "Client metrics configs for m are:"
    assert {line.split()[0] for line in described[1:]} >= {"interval.ms=5000", "metrics=org.apache.kafka.consumer."}
    assert said(broker, CLIENT_METRICS, "--delete", "--name", "m") == ["Deleted client metrics config for m."]
    assert said(broker, CLIENT_METRICS, "--list") == []


def test_a_group_is_configured(broker: BrokerProcess) -> None:
    group = ("--entity-type", "groups", "--entity-name", "g")
    assert said(broker, CONFIGS, "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000") == [
        "Completed updating config for group g."
    ]
    described = said(broker, CONFIGS, "--describe", *group)
    assert described[0] == "Dynamic configs for group g are:"
    assert described[1].startswith("consumer.session.timeout.ms=50000 ")
    assert said(broker, CONFIGS, "--alter", *group, "--delete-config", "consumer.session.timeout.ms") == [
        "Completed updating config for group g."
    ]
    assert said(broker, CONFIGS, "--describe", *group) == ["The group 'g' doesn't exist and doesn't have dynamic config."]
