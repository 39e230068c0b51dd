"""Apache Kafka's ConfigCommand sets quotas, credentials and passwords of a broker of ours, and shows what it set."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.java_pair import CONFIGS, PERFORMANCE, TOPICS

pytestmark = needs_apache_kafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("quotas"), broker_id=0, password_encoder_secret="secret") as running:
        yield running


def configs(broker: BrokerProcess, *arguments: str) -> str:
    ended = run_tool(CONFIGS, "--bootstrap-server", broker.bootstrap, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


ENTITIES = [
    (("--entity-type", "clients", "--entity-name", "c 1"), "producer_byte_rate=1024", "Quota configs for client-id 'c 1' are "),
    (("--entity-type", "clients", "--entity-default"), "consumer_byte_rate=2048", "Quota configs for the default client-id are "),
    (("--entity-type", "users", "--entity-name", "u"), "request_percentage=50.5", "Quota configs for user-principal 'u' are "),
    (("--entity-type", "ips", "--entity-name", "127.0.0.1"), "connection_creation_rate=500", "Quota configs for ip '127.0.0.1' are "),
]


@pytest.mark.parametrize(("entity", "quota", "said"), ENTITIES, ids=[quota for _, quota, _ in ENTITIES])
def test_a_quota_is_set_shown_and_removed(broker: BrokerProcess, entity: tuple[str, ...], quota: str, said: str) -> None:
    key, _, value = quota.partition("=")
    assert "Completed updating " in configs(broker, *entity, "--alter", "--add-config", quota)
    assert f"{said}{key}={float(value)}" in configs(broker, *entity, "--describe")
    configs(broker, *entity, "--alter", "--delete-config", key)
    assert key not in configs(broker, *entity, "--describe")


def test_a_producer_and_an_administrator_above_their_quotas_are_throttled(broker: BrokerProcess) -> None:
    ended = run_tool(TOPICS, "--bootstrap-server", broker.bootstrap, "--create", "--topic", "slow", "--partitions", "1")
    assert ended.returncode == 0, ended.stderr
    perf = ("--entity-type", "clients", "--entity-name", "perf")
    configs(broker, *perf, "--alter", "--add-config", "producer_byte_rate=200000")
    records = ("--topic", "slow", "--num-records", "3000", "--record-size", "1000", "--throughput", "-1", "--print-metrics")
    properties = ("--producer-props", f"bootstrap.servers={broker.bootstrap}", "client.id=perf")
    ended = run_tool(PERFORMANCE, *records, *properties)
    assert ended.returncode == 0, ended.stderr
    (average,) = re.findall(r"produce-throttle-time-avg:\{client-id=perf\} *: (\S+)", ended.stdout)
    assert float(average) > 0
    configs(broker, *perf, "--alter", "--delete-config", "producer_byte_rate")

    users = ("--entity-type", "users", "--entity-default")
    configs(broker, *users, "--alter", "--add-config", "controller_mutation_rate=0.05")
    create = ("--bootstrap-server", broker.bootstrap, "--create", "--partitions", "6", "--topic")
    assert run_tool(TOPICS, *create, "first").returncode == 0
    refused = run_tool(TOPICS, *create, "second")
    configs(broker, *users, "--alter", "--delete-config", "controller_mutation_rate")
    assert refused.returncode == 1
    assert "The throttling quota has been exceeded." in refused.stdout + refused.stderr


def test_a_credential_is_set_shown_and_removed(broker: BrokerProcess) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    configs(broker, *alice, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=wonder]")
    assert "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=8192" in configs(broker, *alice, "--describe")
    configs(broker, *alice, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM-SHA-512" not in configs(broker, *alice, "--describe")


def test_a_password_is_set_and_hidden(broker: BrokerProcess, tmp_path: Path) -> None:
    zero = ("--entity-type", "brokers", "--entity-name", "0")
    configs(broker, *zero, "--alter", "--add-config", "listener.name.x.ssl.keystore.password=hidden-word")
    shown = configs(broker, *zero, "--describe")
    assert "listener.name.x.ssl.keystore.password=null sensitive=true" in shown
    assert "hidden-word" not in shown
