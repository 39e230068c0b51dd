"""Clients of Apache Kafka 4.4 push their metrics by default once kafka-client-metrics has made a subscription."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.support.apache_kafka.java import start_tool
from tests.support.apache_kafka_4 import LOG4J, ensure_jars_4, needs_apache_kafka_4, run_tool_4
from tests.support.broker_process import eventually
from tests.support.in_process_broker import a_broker_in_process

pytestmark = [*needs_apache_kafka_4, pytest.mark.slow]

TOOLS = "org.apache.kafka.tools."
ANSWERED = 'kafka_network_requestmetrics_requests_total{request="GetTelemetrySubscriptions",version="0"} 1'


def test_the_console_producer_pushes_its_last_values_when_it_ends(tmp_path: Path) -> None:
    """A producer of Java pushes when it is closed if it has its subscription, and a record that waits to be sent."""
    with a_broker_in_process(tmp_path, ottla_metrics_listener="127.0.0.1:0", num_partitions=1) as broker:
        endpoint = broker.broker.metrics
        assert endpoint is not None

        def metrics() -> list[str]:
            with urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=90) as response:
                return [str(line) for line in response.read().decode().splitlines()]

        at = ("--bootstrap-server", broker.bootstrap)
        subscription = ("--alter", "--name", "m", "--metrics", "org.apache.kafka.producer.", "--interval", "60000")
        assert run_tool_4(f"{TOOLS}ClientMetricsCommand", *at, *subscription).returncode == 0
        log4j = (f"-Dlog4j2.configurationFile={LOG4J}",)
        producer = start_tool(f"{TOOLS}ConsoleProducer", *at, "--topic", "t", options=log4j, libs=ensure_jars_4())
        assert producer.stdin is not None
        producer.stdin.write("a\n")
        producer.stdin.flush()
        eventually(lambda: ANSWERED in metrics(), what="an answer to GetTelemetrySubscriptions")
        producer.communicate("b\n", timeout=90)
        assert producer.returncode == 0
        lines = metrics()
        sent = [line for line in lines if line.startswith('ottla_client_producer_topic_record_send_total{client_id="console-producer",')]
        assert [line.rpartition(" ")[2] for line in sent] == ["2.0"]
        assert not any(line.startswith("ottla_client_consumer_") for line in lines)
