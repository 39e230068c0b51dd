"""Client telemetry decides about requests as Apache Kafka does: every code, in its order, and what is kept of what was pushed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from ottla.broker.configuration.resource_configs import ResourceConfigs
from ottla.broker.request.expansion import Expansion
from ottla.broker.security.client import Client
from ottla.broker.telemetry.client_telemetry import ClientTelemetry
from ottla.broker.telemetry.subscriptions import Merged
from ottla.config.broker import BrokerConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.protocol.records.compression import CompressionCodec, compress
from ottla.protocol.uuid import ZERO_UUID
from tests.support.otlp import gauge, metrics, point, total

T = TypeVar("T")
ID = bytes(range(16))
ALL = {"metrics": "*", "interval.ms": "10000"}
MAX_BYTES = 10_000
PUSH = metrics(gauge("g", point(1)), total("s", point(2)))


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Stage:
    """A client of one broker."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.clock = Clock()
        self.configs = SimpleNamespace(configs=dict(subscriptions))
        config = BrokerConfig({"log.dirs": "/x", "telemetry.max.bytes": str(MAX_BYTES)})
        self.workers = ThreadPoolExecutor(1)
        numbers = itertools.count()
        self.telemetry = ClientTelemetry(
            config,
            cast("ResourceConfigs", self.configs),
            cast("Any", self.clock),
            Expansion(config, self.workers),
            lambda count: bytes([next(numbers)]) * count,
        )
        self.client = Client("1", "127.0.0.1", 4711, "PLAINTEXT")
        self.subscription_id = 0

    def change(self, **subscriptions: dict[str, str]) -> None:
        self.configs.configs = subscriptions
        self.telemetry.on_change()

    def get(self, instance_id: bytes = ID) -> tuple[ErrorCode, bytes, Merged | None]:
        found = run(self.telemetry.subscribe(instance_id, self.client, "app"))
        if found[2] is not None:
            self.subscription_id = found[2].subscription_id
        return found

    def push(self, data: bytes = PUSH, **fields: Any) -> ErrorCode:
        of: dict[str, Any] = {"client_instance_id": ID, "subscription_id": self.subscription_id, "metrics": data} | fields
        return run(self.telemetry.push(PushTelemetryRequest(**of), self.client, "app"))

    def shown(self) -> dict[str, float]:
        return {series[0]: value for instance in self.telemetry.instances for series, value in instance.values.items()}


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(all=ALL)
    yield made
    made.workers.shutdown()


def test_a_client_gets_an_id_and_what_is_wanted(stage: Stage) -> None:
    error, instance_id, subscription = stage.get(ZERO_UUID)
    assert error == ErrorCode.NONE
    assert instance_id != ZERO_UUID
    assert instance_id[6] >> 4 == 4, "the version of a random UUID"
    assert subscription is not None
    assert (subscription.metrics, subscription.interval_ms) == (("*",), 10_000)
    assert stage.get(ZERO_UUID)[1] != instance_id


def test_pushed_values_are_shown_and_changes_are_added_up(stage: Stage) -> None:
    stage.get()
    assert stage.push() == ErrorCode.NONE
    stage.clock.ms += 10_000
    assert stage.push() == ErrorCode.NONE
    assert stage.shown() == {"ottla_client_g": 1.0, "ottla_client_s_total": 4.0}


@pytest.mark.parametrize("codec", list(CompressionCodec))
def test_metrics_may_be_compressed_with_each_codec(stage: Stage, codec: CompressionCodec) -> None:
    stage.get()
    assert stage.push(compress(codec, PUSH), compression_type=int(codec)) == ErrorCode.NONE
    assert stage.shown()["ottla_client_g"] == 1.0


def test_a_client_that_asks_too_soon_is_refused_until_its_subscription_changes(stage: Stage) -> None:
    assert stage.get()[0] == ErrorCode.NONE
    assert stage.get() == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ZERO_UUID, None)
    stage.change(all=ALL, more={"metrics": "a.", "interval.ms": "200"})
    error, _, subscription = stage.get()
    assert error == ErrorCode.NONE
    assert subscription is not None
    assert subscription.interval_ms == 200
    stage.clock.ms += 200
    assert stage.get()[0] == ErrorCode.NONE


def test_a_client_that_pushes_too_soon_is_refused_unless_it_ends(stage: Stage) -> None:
    stage.get()
    assert stage.push() == ErrorCode.NONE
    stage.clock.ms += 9_999
    assert stage.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert stage.push(terminating=True) == ErrorCode.NONE
    assert stage.push(terminating=True) == ErrorCode.INVALID_REQUEST, "nothing follows the last push"


@pytest.mark.parametrize("instance_id", [ZERO_UUID, (1).to_bytes(16, "big")])
def test_a_push_without_the_id_of_a_client_is_refused(stage: Stage, instance_id: bytes) -> None:
    assert stage.push(client_instance_id=instance_id) == ErrorCode.INVALID_REQUEST
    assert len(stage.telemetry.instances) == 0


def test_after_an_unknown_subscription_the_client_may_ask_at_once(stage: Stage) -> None:
    stage.get()
    stage.subscription_id += 1
    assert stage.push() == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert stage.telemetry.unknown_subscriptions == 1
    assert stage.get()[0] == ErrorCode.NONE
    assert stage.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED, "in the same millisecond"
    stage.clock.ms += 10_000
    assert stage.push() == ErrorCode.NONE


def test_a_client_learns_of_a_subscription_that_ended_by_its_next_push(stage: Stage) -> None:
    stage.get()
    assert stage.telemetry.has_subscriptions()
    stage.change()
    assert not stage.telemetry.has_subscriptions()
    assert stage.push() == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    _, _, subscription = stage.get()
    assert subscription is not None
    assert subscription[:2] == ((), 300_000)


@pytest.mark.parametrize("codec", [-1, 5, 127])
def test_an_unknown_codec_is_refused_and_the_client_may_ask_at_once(stage: Stage, caplog: pytest.LogCaptureFixture, codec: int) -> None:
    stage.get()
    assert stage.push(compression_type=codec) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert caplog.messages == ["1 on listener PLAINTEXT: pushed metrics are refused: their codec is unknown (client id app)"]
    assert stage.get()[0] == ErrorCode.NONE


def test_too_many_bytes_are_refused_compressed_and_expanded(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.get()
    assert stage.push(bytes(MAX_BYTES + 1)) == ErrorCode.TELEMETRY_TOO_LARGE
    for codec in (CompressionCodec.GZIP, CompressionCodec.SNAPPY, CompressionCodec.LZ4, CompressionCodec.ZSTD):
        stage.clock.ms += 10_000
        bomb = compress(codec, bytes(MAX_BYTES + 1))
        assert len(bomb) < MAX_BYTES
        caplog.clear()
        assert stage.push(bomb, compression_type=int(codec)) == ErrorCode.TELEMETRY_TOO_LARGE
        assert "they expand to more than telemetry.max.bytes=10000 (client id app)" in caplog.text


@pytest.mark.parametrize(
    ("codec", "data"),
    [(0, b"no metrics"), (0, PUSH[:-1]), (1, b"no gzip"), (2, b"\xff" * 9), (3, b"no lz4"), (4, b"no zstd"), (4, compress(4, PUSH)[:-1])],
)
def test_malformed_metrics_are_refused_with_one_line_and_nothing_is_kept(
    stage: Stage, caplog: pytest.LogCaptureFixture, codec: int, data: bytes
) -> None:
    stage.get()
    with caplog.at_level(logging.WARNING):
        assert stage.push(data, compression_type=codec) == ErrorCode.INVALID_RECORD
    (line,) = caplog.messages
    assert line.startswith("1 on listener PLAINTEXT: pushed metrics are refused: ")
    assert line.endswith("(client id app)")
    assert stage.shown() == {}


def test_a_push_without_metrics_is_taken(stage: Stage) -> None:
    stage.get()
    assert stage.push(b"", terminating=True) == ErrorCode.NONE


def test_only_matching_subscriptions_count(stage: Stage) -> None:
    stage.change(
        mine={"metrics": "a.", "match": "client_id=app,client_source_port=4711"},
        others={"metrics": "b.", "match": "client_id=other"},
        broken={"metrics": "c.", "match": "client_id"},
    )
    _, _, subscription = stage.get()
    assert subscription is not None
    assert subscription[:2] == (("a.",), 300_000)


def test_a_client_that_was_forgotten_is_known_again_by_its_next_push(stage: Stage) -> None:
    stage.get()
    stage.clock.ms += 60_000
    stage.telemetry.expire()
    assert len(stage.telemetry.instances) == 0
    assert stage.push() == ErrorCode.NONE


def test_a_client_that_is_forgotten_while_its_metrics_are_read_leaves_nothing(stage: Stage) -> None:
    stage.get()

    async def push_and_forget() -> ErrorCode:
        request = PushTelemetryRequest(client_instance_id=ID, subscription_id=stage.subscription_id, metrics=PUSH)
        pushing = asyncio.ensure_future(stage.telemetry.push(request, stage.client, "app"))
        await asyncio.sleep(0)
        stage.telemetry.instances.expire(stage.clock.ms + 10**9)
        return await pushing

    assert run(push_and_forget()) == ErrorCode.NONE
    assert (len(stage.telemetry.instances), stage.telemetry.instances.series) == (0, 0)


def test_a_subscription_that_cannot_be_used_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(bad={"metrics": "*", "match": "client_id=["}, good=ALL)
    for number in range(3):
        assert stage.get(bytes([number]) * 16)[0] is ErrorCode.NONE
    told = [record.getMessage() for record in caplog.records]
    assert told == ["the subscription bad of metrics of clients cannot be used; set its configuration again"]
