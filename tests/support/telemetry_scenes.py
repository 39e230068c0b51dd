"""Plays the scenes of tests/recorded/telemetry-4.4.jsonl: clients that ask for subscriptions to their metrics, and push them.

`python -m tests.support.telemetry_scenes PORT` plays them against an Apache Kafka 4.4 without subscriptions, and writes the recording.
`tests/integration/test_client_telemetry.py` plays them against Ottla. No scene has to wait, because
others have another client instance.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.records.compression import CompressionCodec, compress
from ottla.protocol.uuid import ZERO_UUID
from tests.support.broker_process import eventually
from tests.support.otlp import gauge, metrics, point
from tests.support.wire_client import WireClient, a_wire_client

RECORDING = Path(__file__).parents[1] / "recorded" / "telemetry-4.4.jsonl"
CLIENT_METRICS, SET = 16, 0
GOOD = metrics(gauge("org.apache.kafka.made.up", point(1)))
RESERVED = (ZERO_UUID, (1).to_bytes(16, "big"))

Played = Iterator[tuple[str, Any]]


class Player:
    """A client instance of each number."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._subscription_ids: dict[int, int] = {}

    def change(self, name: str, operation: int, **configs: str) -> int:
        """Change a subscription; the error code."""
        changes = [AlterableConfig(name=key.replace("_", "."), config_operation=operation, value=value) for key, value in configs.items()]
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=changes)
        error: int = self._client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code
        return error

    def get(self, number: int) -> dict[str, Any]:
        """Ask for the subscription of an instance; metrics are sorted."""
        answer = self._client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id(number)), 0)
        if not answer.error_code:
            self._subscription_ids[number] = answer.subscription_id
        fields = {field.name: getattr(answer, field.name) for field in answer.SCHEMA.fields}
        return fields | {"client_instance_id": answer.client_instance_id.hex(), "requested_metrics": sorted(answer.requested_metrics)}

    def push(self, number: int, data: bytes = GOOD, codec: int = 0, *, other: int = 0, terminating: bool = False) -> int:
        """Push metrics with the subscription of the instance, or with another one."""
        request = PushTelemetryRequest(
            client_instance_id=instance_id(number),
            subscription_id=self._subscription_ids.get(number, 0) + other,
            compression_type=codec,
            metrics=data,
            terminating=terminating,
        )
        error: int = self._client.ask(request, 0).error_code
        return error


def instance_id(number: int) -> bytes:
    """The ids of the first two instances are reserved."""
    return RESERVED[number] if number < len(RESERVED) else bytes(range(number, number + 16))


def play(port: int) -> Played:
    """Each scene and its answer."""
    with a_wire_client(port) as client:
        player = Player(client)
        others = iter(range(100, 240))
        yield "without a subscription", player.get(2)
        yield "a subscription is made", player.change("one", SET, metrics="org.apache.kafka.producer.", interval_ms="100000")
        eventually(lambda: player.get(next(others))["push_interval_ms"] == 100_000)
        yield "the subscription has changed", player.get(2)
        yield "asked too soon", player.get(2)
        yield from _pushes(player)
        yield from _refused(player)
        yield "another subscription matches", player.change("two", SET, metrics="*", match="client_id=wi.*,client_source_address=127.*")
        yield "others do not match", player.change("three", SET, interval_ms="200", match="client_id=w")
        eventually(lambda: player.get(next(others))["requested_metrics"] == ["*"])
        yield "all metrics", player.get(2)
        yield "pushed with the former subscription", player.push(3)


def _pushes(player: Player) -> Played:
    for number in range(len(RESERVED)):
        yield f"pushed by the reserved instance {number}", player.push(number)
    yield "pushed", player.push(2)
    yield "pushed too soon", player.push(2)
    yield "asked after a push", player.get(2)["error_code"]
    yield "the last push may come too soon", player.push(2, terminating=True)
    yield "pushed after the last push", player.push(2)
    yield "pushed once more", player.push(2)
    yield "asked by another instance", player.get(3)
    yield "the last push has no metrics", player.push(3, b"", terminating=True)
    yield "pushed by an unknown instance", player.push(4)


def _refused(player: Player) -> Played:
    for number, codec in enumerate((-1, 5, 127), start=10):
        player.get(number)
        yield f"pushed with codec {codec}", player.push(number, codec=codec)
        yield f"asked at once after codec {codec}", player.get(number)["error_code"]
    player.get(20)
    yield "pushed with another subscription", player.push(20, other=1)
    yield "asked at once", player.get(20)["error_code"]
    player.get(21)
    yield "pushed too many bytes", player.push(21, bytes(1_048_577))
    yield "asked at once after too many bytes", player.get(21)["error_code"]
    for number, codec in enumerate(CompressionCodec, start=30):
        player.get(number)
        yield f"pushed in {codec.label}", player.push(number, compress(codec, GOOD), codec)
    player.get(40)
    yield "pushed no gzip", player.push(40, b"no gzip", CompressionCodec.GZIP)


if __name__ == "__main__":
    RECORDING.write_text("".join(json.dumps({"scene": scene, "answer": answer}) + "\n" for scene, answer in play(int(sys.argv[1]))))
