"""Clients of Apache Kafka 4.4 push their metrics by default once kafka-client-metrics has made a subscription."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.support.apache_kafka_4 import needs_apache_kafka_4, run_tool_4
from tests.support.in_process_broker import a_broker_in_process

pytestmark = [*needs_apache_kafka_4, pytest.mark.slow]


def test_the_console_producer_pushes_its_last_values_when_it_ends(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, ottla_metrics_listener="127.0.0.1:0", num_partitions=1) as broker:
        at = ("--bootstrap-server", broker.bootstrap)
        subscription = ("--alter", "--name", "m", "--metrics", "org.apache.kafka.producer.", "--interval", "60000")
        assert run_tool_4("org.apache.kafka.tools.ClientMetricsCommand", *at, *subscription).returncode == 0
        # A producer that ends before the answer to GetTelemetrySubscriptions pushes nothing: with --sync each record waits for a second.
        producer = ("org.apache.kafka.tools.ConsoleProducer", *at, "--topic", "t", "--sync")
        assert run_tool_4(*producer, input="a\nb\n").returncode == 0
        endpoint = broker.broker.metrics
        assert endpoint is not None
        with urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=90) as response:
            lines = response.read().decode().splitlines()
        sent = [line for line in lines if line.startswith('ottla_client_producer_topic_record_send_total{client_id="console-producer",')]
        assert [line.rpartition(" ")[2] for line in sent] == ["2.0"]
        assert not any(line.startswith("ottla_client_consumer_") for line in lines)
