"""Clients push their metrics while there is a subscription, and the metrics endpoint shows them (KIP-714)."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from ottla.broker.telemetry.otlp import points_of
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.records.compression import CompressionCodec, compress
from ottla.protocol.uuid import to_text
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.otlp import gauge, metrics, point
from tests.support.otlp_collector import Collector, serving
from tests.support.telemetry_scenes import RECORDING, SET, Player, play
from tests.support.wire_client import WireClient, a_wire_client

DELETE = 1
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    directory: Path = tmp_path_factory.mktemp("telemetry")
    with a_broker_in_process(directory, ottla_metrics_listener="127.0.0.1:0") as started:
        yield started


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


def change(client: WireClient, name: str, operation: int, **configs: str) -> None:
    assert Player(client).change(name, operation, **configs) == ErrorCode.NONE


@pytest.fixture
def subscription(client: WireClient) -> Iterator[None]:
    configs = {"metrics": "*", "interval_ms": "300"}
    change(client, "all", SET, **configs)
    yield
    change(client, "all", DELETE, **configs)


def listed(client: WireClient) -> set[int]:
    return {each.api_key for each in client.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3).api_keys}


def shown(broker: InProcessBroker) -> list[str]:
    endpoint = broker.broker.metrics
    assert endpoint is not None
    with urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=90) as response:
        return [line for line in response.read().decode().splitlines() if line.startswith(("ottla_client_", "# TYPE ottla_client_"))]


def test_requests_are_answered_as_by_apache_kafka_4(tmp_path: Path) -> None:
    recorded = [(line["scene"], line["answer"]) for line in map(json.loads, RECORDING.read_text().splitlines())]
    with a_broker_in_process(tmp_path) as running:
        assert list(play(running.port)) == recorded


def test_telemetry_is_listed_while_there_is_a_subscription(client: WireClient) -> None:
    assert not listed(client) & TELEMETRY
    change(client, "one", SET, metrics="a.")
    assert listed(client) >= TELEMETRY
    change(client, "two", SET, metrics="b.", match="client_id=other")
    change(client, "one", DELETE, metrics="")
    assert listed(client) >= TELEMETRY
    change(client, "two", DELETE, metrics="", match="")
    assert not listed(client) & TELEMETRY


@pytest.mark.usefixtures("subscription")
def test_pushed_metrics_are_shown_with_the_client(broker: InProcessBroker, client: WireClient) -> None:
    wanted = client.ask(GetTelemetrySubscriptionsRequest(), 0)
    assert (wanted.error_code, wanted.push_interval_ms, wanted.requested_metrics) == (0, 300, ["*"])
    assert (wanted.accepted_compression_types, wanted.telemetry_max_bytes, wanted.delta_temporality) == ([4, 3, 1, 2], 1_048_576, True)
    instance = to_text(wanted.client_instance_id)

    def push(subscription_id: int, data: bytes, codec: int = 4, *, terminating: bool = False) -> int:
        request = PushTelemetryRequest(
            client_instance_id=wanted.client_instance_id,
            subscription_id=subscription_id,
            compression_type=codec,
            metrics=data,
            terminating=terminating,
        )
        error: int = client.ask(request, 0).error_code
        return error

    known = wanted.subscription_id
    good = compress(CompressionCodec.ZSTD, metrics(gauge("org.apache.kafka.made.up", point(7, node="1"))))
    assert push(known, good) == ErrorCode.NONE
    line = f'ottla_client_made_up{{client_id="wire",client_instance_id="{instance}",node="1"}} 7.0'
    assert shown(broker) == ["# TYPE ottla_client_made_up gauge", line]
    assert push(known, good) == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def next_push(subscription_id: int, data: bytes, codec: int = 4) -> int:
        """The answer when an interval has passed."""
        errors: list[int] = []

        def is_on_time() -> bool:
            errors.append(push(subscription_id, data, codec))
            return errors[-1] != ErrorCode.THROTTLING_QUOTA_EXCEEDED

        eventually(is_on_time)
        return errors[-1]

    assert next_push(known + 1, good) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert next_push(known, good, codec=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert next_push(known, good[:-1]) == ErrorCode.INVALID_RECORD
    assert next_push(known, bytes(1_048_577), codec=0) == ErrorCode.TELEMETRY_TOO_LARGE
    assert next_push(known, compress(CompressionCodec.ZSTD, bytes(100_000_000))) == ErrorCode.TELEMETRY_TOO_LARGE
    assert push(known, b"", terminating=True) == ErrorCode.NONE
    assert push(known, good) == ErrorCode.INVALID_REQUEST
    assert shown(broker)[-1] == line


@pytest.mark.usefixtures("subscription")
def test_librdkafka_pushes_its_metrics_by_default(broker: InProcessBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "client.id": "rd"})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "client.id": "rd-c", "group.id": "g"})
    consumer.subscribe(["t"])

    def both_are_shown() -> bool:
        producer.produce("t", b"x")
        producer.poll(0)
        consumer.poll(0.1)
        lines = shown(broker)
        return all(
            any(line.startswith(f"ottla_client_{kind}_") and f'client_id="{name}"' in line for line in lines)
            for kind, name in (("producer", "rd"), ("consumer", "rd-c"))
        )

    eventually(both_are_shown)
    producer.flush(90)
    consumer.close()
    lines = shown(broker)
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series)), "Prometheus refuses a series that is there twice"


def test_a_collector_gets_what_librdkafka_pushes(tmp_path: Path) -> None:
    with (
        serving(Collector()) as collector,
        a_broker_in_process(tmp_path, ottla_telemetry_otlp_url=collector.url) as running,
        a_wire_client(running.port) as client,
    ):
        change(client, "all", SET, metrics="org.apache.kafka.producer.", interval_ms="300")
        producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap, "client.id": "r d"})

        def has_got() -> bool:
            producer.produce("t", b"x")
            producer.poll(0.1)
            return len(collector.got) > 1

        eventually(has_got)
        producer.flush(90)
    for _, headers, body in collector.got:
        names = {each.name for each in points_of(body, lambda: None)}
        assert names
        assert all(name.startswith("org.apache.kafka.producer.") for name in names)
        assert headers["X-Kafka-Client-Id"] == "r%20d"
