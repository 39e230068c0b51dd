"""Quotas of users and client ids against a broker: what the answers say, how long the broker waits, and what else depends on it."""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections.abc import Callable, Iterator
from math import isnan
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from ottla.broker.server import Broker, CannotStart
from ottla.config.broker import BrokerConfig
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema.message import Message
from ottla.protocol.schema.registry import api
from tests.support.admin_requests import OK, a_topic, create, delete, grow, said
from tests.support.batches import a_batch
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

EXCEEDED = ("THROTTLING_QUOTA_EXCEEDED", None)
USER, CLIENT_ID = "user", "client-id"
BATCH = bytes(a_batch(value_bytes=20_000, timestamps=[int(time.time() * 1000)]))
Limit = Callable[..., None]
FREE = {"producer_byte_rate": None, "consumer_byte_rate": None, "request_percentage": None, "controller_mutation_rate": None}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path_factory.mktemp("quotas")) as running:
        yield running


@pytest.fixture
def client(broker: InProcessBroker, name: str) -> Iterator[WireClient]:
    """A client whose id is the name of the test, so that no other test has used its quota."""
    with a_wire_client(broker.port, client_id=name) as connected:
        yield connected


@pytest.fixture
def limit(broker: InProcessBroker, name: str) -> Iterator[Callable[..., None]]:
    """Sets quotas of the client, by a connection that has none; afterwards no quota is left."""

    def set_for_client(entity: dict[str, str | None] | None = None, **quotas: float | None) -> None:
        with a_wire_client(broker.port, client_id="administrator") as administrator:
            set_quotas(administrator, entity or {CLIENT_ID: name}, **quotas)

    yield set_for_client
    set_for_client(**FREE)


def set_quotas(client: WireClient, entity: dict[str, str | None], **quotas: float | None) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    (answer,) = client.ask(AlterClientQuotasRequest(entries=[entry]), 1).entries
    assert answer.error_code == ErrorCode.NONE


def a_produce(topic: str, acks: int = -1) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=BATCH)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])])


def a_fetch(topic_id: bytes, max_bytes: int = 1 << 20) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[FetchTopic(topic_id=topic_id, partitions=[partition])])


def framed(request: Message, version: int, client_id: str) -> bytes:
    assert request.SCHEMA.api_key is not None
    types = api(ApiKey(request.SCHEMA.api_key))
    header = RequestHeader(request_api_key=types.key, request_api_version=version, correlation_id=1, client_id=client_id)
    body = header.encode(types.request_header_version(version)) + request.encode(version)
    return struct.pack(">i", len(body)) + body


def bound_for(throttle_ms: int, size: int) -> float:
    """The quota that makes the first `size` bytes of a client wait that long: rates are measured over ten seconds at least."""
    return round(size / (10 + throttle_ms / 1000))


def seconds_of(work: Any) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_a_producer_above_its_quota_is_told_at_once(client: WireClient, limit: Limit, name: str) -> None:
    create(client, a_topic(name))
    limit(producer_byte_rate=bound_for(60_000, len(framed(a_produce(name), 9, name)) - 4))
    answers: list[Any] = []
    assert seconds_of(lambda: answers.append(client.ask(a_produce(name), 9))) < 30  # the answer does not wait
    assert answers[0].responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert answers[0].throttle_time_ms == pytest.approx(60_000, abs=200)


def test_the_next_requests_wait(client: WireClient, limit: Limit, broker: InProcessBroker, name: str) -> None:
    create(client, a_topic(name))
    limit(producer_byte_rate=bound_for(700, len(framed(a_produce(name), 9, name)) - 4))
    with a_wire_client(broker.port, client_id=name) as pipelining:
        versions = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        began = time.monotonic()
        pipelining._socket.sendall(framed(a_produce(name), 9, name) + framed(versions, 3, name) * 3)
        arrivals = []
        for _ in range(4):
            (length,) = struct.unpack(">i", pipelining._read(4))
            pipelining._read(length)
            arrivals.append(time.monotonic() - began)
    assert arrivals[1] > 0.6


def test_acks_0_is_limited_by_bytes(client: WireClient, limit: Limit, broker: InProcessBroker, name: str) -> None:
    create(client, a_topic(name))
    limit(producer_byte_rate=bound_for(700, len(framed(a_produce(name, acks=0), 9, name)) - 4))
    with a_wire_client(broker.port, client_id=name) as silent:
        silent._socket.sendall(framed(a_produce(name, acks=0), 9, name))
        assert seconds_of(lambda: silent.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)) > 0.5


def test_a_throttled_fetch_has_no_records_and_is_not_counted(client: WireClient, limit: Limit, name: str) -> None:
    topic_id = create(client, a_topic(name))[0].topic_id
    for _ in range(5):
        client.ask(a_produce(name), 9)
    limit(consumer_byte_rate=6_000)  # at most 60,000 bytes at once: two batches
    first = client.ask(a_fetch(topic_id), 17)
    records = first.responses[0].partitions[0].records
    assert (first.throttle_time_ms, len(records)) == (0, 2 * len(BATCH))
    throttled = client.ask(a_fetch(topic_id), 17)
    assert throttled.throttle_time_ms > 0
    assert throttled.responses == []
    limit(consumer_byte_rate=None)
    assert client.ask(a_fetch(topic_id), 17).responses[0].partitions[0].records


def test_a_fetch_in_a_session_goes_on_after_the_throttle_time(client: WireClient, limit: Limit, name: str) -> None:
    topic_id = create(client, a_topic(name))[0].topic_id
    client.ask(a_produce(name), 9)
    opening = a_fetch(topic_id)
    opening.session_epoch = 0
    opening.topics[0].partitions[0].fetch_offset = 1
    session_id = client.ask(opening, 17).session_id
    assert session_id
    client.ask(a_produce(name), 9)
    limit(consumer_byte_rate=1_900)
    following = FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=0, max_bytes=1 << 20)
    throttled = client.ask(following, 17)
    assert (throttled.throttle_time_ms > 0, throttled.session_id, throttled.responses) == (True, session_id, [])
    limit(consumer_byte_rate=None)
    following.session_epoch = 2
    assert len(client.ask(following, 17).responses[0].partitions[0].records) == len(BATCH)


def test_every_request_counts_its_time(client: WireClient, limit: Limit) -> None:
    limit(request_percentage=0.0001)
    answer = client.ask(MetadataRequest(topics=[]), 12)
    assert 0 < answer.throttle_time_ms <= 1000


def test_partitions_above_the_quota_are_refused_and_older_versions_are_throttled(
    client: WireClient, limit: Limit, broker: InProcessBroker, name: str
) -> None:
    limit(controller_mutation_rate=0.1)  # one at once
    request = CreateTopicsRequest(topics=[a_topic(f"{name}-a", 2), a_topic(f"{name}-b", 1)], timeout_ms=10_000)
    answer = client.ask(request, 7)
    assert {topic.name: said(topic) for topic in answer.topics} == {f"{name}-a": OK, f"{name}-b": EXCEEDED}
    assert 0 < answer.throttle_time_ms <= 9_000
    # The connection is not read now, but another one of the client is.
    with a_wire_client(broker.port, client_id=name) as second:
        assert grow(second, f"{name}-a", 3) == EXCEEDED
    with a_wire_client(broker.port, client_id=name) as third:
        (refused,) = delete(third, f"{name}-a", version=5)
        assert ErrorCode.of(refused.error_code) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with a_wire_client(broker.port, client_id=name) as fourth:
        older = fourth.ask(CreateTopicsRequest(topics=[a_topic(f"{name}-c", 3)], timeout_ms=10_000), 5)
        assert [said(topic) for topic in older.topics] == [OK]
        assert older.throttle_time_ms > 20_000


def test_topics_on_demand_count_and_are_not_throttled(client: WireClient, limit: Limit, broker: InProcessBroker, name: str) -> None:
    limit(controller_mutation_rate=0.01)
    for topic in ("a", "b"):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"{name}-{topic}")], allow_auto_topic_creation=True)
        answer = client.ask(asked, 9)
        assert (ErrorCode.of(answer.topics[0].error_code), answer.throttle_time_ms) == (ErrorCode.LEADER_NOT_AVAILABLE, 0)
    assert said(create(client, a_topic(f"{name}-c"))[0]) == EXCEEDED


def test_the_quota_of_a_user_counts_before_those_of_client_ids(client: WireClient, limit: Limit, name: str) -> None:
    create(client, a_topic(name))
    user, pair = {USER: "ANONYMOUS"}, {USER: "ANONYMOUS", CLIENT_ID: None}
    limit(user, producer_byte_rate=1e9)
    limit(producer_byte_rate=1)
    assert client.ask(a_produce(name), 9).throttle_time_ms == 0
    limit(pair, producer_byte_rate=100)
    assert client.ask(a_produce(name), 9).throttle_time_ms > 0
    limit(user, **FREE)
    limit(pair, **FREE)


def test_quotas_survive_a_restart_and_a_stop_does_not_wait_for_throttled_clients(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path) as broker, a_wire_client(broker.port) as client:
        create(client, a_topic("t"))
        set_quotas(client, {USER: None}, producer_byte_rate=100)
    broker = InProcessBroker(tmp_path)
    try:
        client = WireClient(broker.port)
        assert client.ask(a_produce("t"), 9).throttle_time_ms > 100_000
        client._socket.sendall(framed(a_produce("t"), 9, "wire"))
    finally:
        assert seconds_of(broker.stop) < 10
    client.close()


def test_the_metrics_show_limited_clients(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path, ottla_metrics_listener="127.0.0.1:0") as broker, a_wire_client(broker.port) as client:
        create(client, a_topic("t"))
        set_quotas(client, {USER: "ANONYMOUS"}, producer_byte_rate=1000, controller_mutation_rate=5)
        set_quotas(client, {CLIENT_ID: "wire"}, request_percentage=50)
        assert client.ask(a_produce("t"), 9).throttle_time_ms > 0
        metrics = broker.broker.metrics
        assert metrics is not None
        with urlopen(f"http://{metrics.address}/metrics") as answer:
            text = answer.read().decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("kafka_server_quota_"))
    produce = '{resource="Produce",user="ANONYMOUS",clientId=""}'
    assert float(values[f"kafka_server_quota_byte_rate{produce}"]) > 1000
    assert float(values[f"kafka_server_quota_throttle_time{produce}"]) > 0
    assert isnan(float(values['kafka_server_quota_throttle_time{resource="Request",user="",clientId="wire"}']))
    assert values['kafka_server_quota_tokens{resource="ControllerMutation",user="ANONYMOUS",clientId=""}'] == "55.0"
    assert values['kafka_server_quota_queue_size{resource="Produce"}'] == "1"
    assert float(values['kafka_server_quota_request_time{resource="Request",user="",clientId="wire"}']) >= 0
    assert 'kafka_network_requestmetrics_throttletimems_count{request="Produce"} 1' in text


@pytest.mark.parametrize("key", ["client.quota.callback.class", "create.topic.policy.class.name", "alter.config.policy.class.name"])
def test_a_class_of_java_that_would_restrict_clients_stops_the_start(key: str, tmp_path: Path) -> None:
    config = BrokerConfig({"log.dirs": str(tmp_path), key: "org.example.Limits"})

    async def start() -> None:
        await Broker(config).start()

    with pytest.raises(CannotStart, match=f"{re.escape(key)}=org\\.example\\.Limits"):
        asyncio.run(start())
