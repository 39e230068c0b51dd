"""Apache Kafka's own tools authenticate at a SASL_PLAINTEXT listener: users are made, records are written and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_sasl_clients import address_of
from tests.integration.test_sasl_limits import SASL
from tests.integration.test_sasl_listener import LIFETIME_MS, MODULE
from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.in_process_broker import a_broker_in_process
from tests.support.java_pair import CONFIGS, CONSUMER, PRODUCER, TOPICS

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_user_made_by_kafka_configs_writes_and_reads_by_scram(tmp_path: Path) -> None:
    more = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
        "connections.max.reauth.ms": LIFETIME_MS,
    }
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={MODULE}.scram.ScramLoginModule required username="alice" password="alice-secret";\n'
    )
    with a_broker_in_process(tmp_path / "log", **{**SASL, **more}) as broker:
        plaintext, sasl = address_of(broker, "PLAINTEXT"), address_of(broker, "SASL")
        user = ("--alter", "--entity-type", "users", "--entity-name", "alice")
        made = run_tool(CONFIGS, "--bootstrap-server", plaintext, *user, "--add-config", "SCRAM-SHA-512=[password=alice-secret]")
        assert made.returncode == 0, made.stdout + made.stderr
        topic = run_tool(TOPICS, "--bootstrap-server", sasl, "--command-config", str(login), "--create", "--topic", "secured")
        assert topic.returncode == 0, topic.stdout + topic.stderr
        to_topic = ("--bootstrap-server", sasl, "--topic", "secured")
        written = run_tool(PRODUCER, *to_topic, "--producer.config", str(login), input="one\ntwo\n")
        assert written.returncode == 0, written.stdout + written.stderr
        bounds = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
        read = run_tool(CONSUMER, *to_topic, "--consumer.config", str(login), *bounds)
        assert read.stdout == "one\ntwo\n", read.stderr
        login.write_text(login.read_text().replace("alice-secret", "wrong"))
        refused = run_tool(TOPICS, "--bootstrap-server", sasl, "--command-config", str(login), "--list")
        assert refused.returncode == 1
        assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in refused.stdout + refused.stderr
