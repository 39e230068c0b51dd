"""The metrics endpoint of a running broker: what it tells after real clients worked, and how it starts, answers and goes."""

import asyncio
import gzip
import platform
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.build import version
from ottla.broker.metrics.endpoint import FAMILIES, MetricsEndpoint
from ottla.broker.metrics.families import Kind
from ottla.broker.metrics.http_server import MAX_REQUESTS
from ottla.broker.server import Broker, CannotStart
from ottla.config.broker import BrokerConfig
from ottla.controller.admin.topic_admin import NewTopic
from ottla.protocol.compiled import IS_COMPILED
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import a_batch
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import a_wire_client

TOPIC = "orders"
RECORDS = 500
SECONDS = 90.0
ANY_PORT = "127.0.0.1:0"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """After a producer and a group did some work."""
    with a_broker_in_process(
        tmp_path_factory.mktemp("metrics"),
        ottla_metrics_listener=ANY_PORT,
        ottla_group_lag_max_series=100,
        offsets_topic_num_partitions=3,
        group_initial_rebalance_delay_ms=0,
        message_max_bytes=100_000,
    ) as running:
        running.run(running.services.administration.topic_admin.create_topics, [NewTopic(TOPIC, 2, 1)])
        produce(running)
        consume(running)
        yield running


def produce(broker: InProcessBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 1_000_000})
    for i in range(RECORDS):
        producer.produce(TOPIC, b"%05d" % i, partition=i % 2)
    assert producer.flush(SECONDS) == 0
    errors: list[KafkaError | None] = []
    producer.produce(TOPIC, bytes(200_000), partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def consume(broker: InProcessBroker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + SECONDS
    found = 0
    while found < RECORDS and time.monotonic() < deadline:
        for message in consumer.consume(RECORDS, 0.5):
            if message.error() is not None:
                raise KafkaException(message.error())
            found += 1
    assert found == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def url(broker: InProcessBroker, path: str) -> str:
    endpoint = broker.broker.metrics
    assert endpoint is not None
    return f"http://{endpoint.address}{path}"


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def scrape(broker: InProcessBroker) -> Samples:
    status, text = get(url(broker, "/metrics"))
    assert status == 200
    families = text_string_to_metric_families(text)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_what_clients_wrote_and_read_is_counted_by_topic_and_in_all(broker: InProcessBroker) -> None:
    samples = scrape(broker)
    name = "kafka_server_brokertopicmetrics_"
    assert value(samples, f"{name}messagesin_total", topic=TOPIC) == RECORDS
    assert value(samples, f"{name}messagesin_total") > RECORDS, "the group writes, too"
    size = sum(value(samples, "kafka_log_log_size", topic=TOPIC, partition=index) for index in "01")
    assert value(samples, f"{name}bytesin_total", topic=TOPIC) == size
    assert value(samples, f"{name}bytesout_total", topic=TOPIC) >= size
    assert value(samples, f"{name}bytesrejected_total", topic=TOPIC) > 200_000
    assert value(samples, f"{name}failedproducerequests_total", topic=TOPIC) == 0
    assert value(samples, f"{name}totalproducerequests_total", topic=TOPIC) >= 3
    assert value(samples, f"{name}totalfetchrequests_total", topic=TOPIC) >= 2


def test_requests_are_counted_by_version_and_measured(broker: InProcessBroker) -> None:
    samples = scrape(broker)
    requests = {
        dict(labels)["request"]: number
        for (name, labels), number in samples.items()
        if name == "kafka_network_requestmetrics_requests_total"
    }
    assert {"Produce", "Fetch", "FetchConsumer", "Metadata", "ApiVersions", "JoinGroup", "OffsetCommit"} <= set(requests)
    assert requests["Fetch"] == requests["FetchConsumer"]
    for station in ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total"):
        name = f"kafka_network_requestmetrics_{station}timems"
        assert 0 < value(samples, f"{name}_count", request="Produce") <= requests["Produce"]
        assert value(samples, name, request="Produce", quantile="0.99") >= 0
    assert value(samples, "kafka_network_requestmetrics_requestbytes_sum", request="Produce") > 0
    errors = "kafka_network_requestmetrics_errors_total"
    assert value(samples, errors, request="Produce", error="MESSAGE_TOO_LARGE") == 1
    assert value(samples, errors, request="Produce", error="NONE") == requests["Produce"] - 1


def test_a_long_poll_is_remote_time(broker: InProcessBroker) -> None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "waiting", "fetch.wait.max.ms": 200, "auto.offset.reset": "latest"}
    )
    consumer.subscribe([TOPIC])
    name = "kafka_network_requestmetrics_remotetimems_sum"
    deadline = time.monotonic() + SECONDS
    try:
        while value(scrape(broker), name, request="FetchConsumer") < 150 and time.monotonic() < deadline:
            consumer.poll(0.3)
    finally:
        consumer.close()
    samples = scrape(broker)
    assert value(samples, name, request="FetchConsumer") >= 150
    assert value(samples, "kafka_server_delayedfetchmetrics_expires_total", fetcherType="consumer") >= 1


def test_the_state_of_the_broker_is_told(broker: InProcessBroker) -> None:
    samples = scrape(broker)
    assert value(samples, "kafka_server_replicamanager_partitioncount") == 5
    assert value(samples, "kafka_server_replicamanager_leadercount") == 5
    assert value(samples, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(samples, "kafka_server_replicamanager_offlinereplicacount") == 0
    assert value(samples, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(samples, "kafka_controller_kafkacontroller_globaltopiccount") == 2
    assert value(samples, "kafka_controller_kafkacontroller_globalpartitioncount") == 5
    assert value(samples, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert value(samples, "kafka_coordinator_group_groupmetadatamanager_numgroups") >= 1
    assert value(samples, "kafka_coordinator_group_groupmetadatamanager_numoffsets") >= 2
    assert value(samples, "kafka_log_logmanager_offlinelogdirectorycount") == 0
    assert value(samples, "kafka_server_kafkaserver_brokerstate") == 3
    assert value(samples, "kafka_log_log_logendoffset", topic=TOPIC, partition="0") == RECORDS / 2
    assert value(samples, "kafka_cluster_partition_insyncreplicascount", topic=TOPIC, partition="1") == 1
    assert 0 <= value(samples, "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent") <= 1
    assert value(samples, "process_open_fds") > 0
    assert value(samples, "process_resident_memory_bytes") > 0
    assert ("python_gc_collections_total", frozenset({("generation", "2")})) in samples


def test_a_series_says_which_ottla_this_is(broker: InProcessBroker) -> None:
    (labels,) = (dict(labels) for name, labels in scrape(broker) if name == "ottla_build_info")
    assert labels == {
        "version": version(),
        "emulates": "Apache Kafka 3.9 in ZooKeeper mode",
        "python": platform.python_version(),
        "hot_path": "compiled" if IS_COMPILED else "pure Python",
    }


def test_every_family_that_the_page_names_is_there(broker: InProcessBroker) -> None:
    with a_wire_client(broker.port) as client:  # there are connections by software only while there is one
        client.ask(ApiVersionsRequest(), 0)
        _, text = get(url(broker, "/metrics"))
    for family in FAMILIES:
        assert f"# TYPE {family.name} {family.kind.value}\n" in text
        if any(word in family.name for word in ("fetcherstats", "fetcherlag", "sessionexpire", "zookeeperclient", "cipher")):
            continue  # of a broker that follows others, keeps its metadata in ZooKeeper, or has a client over TLS
        if any(word in family.name for word in ("sharepartitionmetrics", "remote", "_rlm")):
            continue  # of share groups with members, of tiered storage
        if family.name.startswith("kafka_server_quota_") and "user" in family.labels:
            continue  # of clients that a quota limits
        suffix = "_count" if family.kind is Kind.SUMMARY else ""
        assert any(line.startswith((f"{family.name}{suffix} ", f"{family.name}{suffix}{{")) for line in text.splitlines()), family.name


def test_connections_are_counted_by_listener(broker: InProcessBroker) -> None:
    name = "kafka_server_socket_server_metrics_connection"
    before = value(scrape(broker), f"{name}_creation_total", listener="PLAINTEXT")
    with socket.create_connection(("127.0.0.1", broker.port)):
        deadline = time.monotonic() + SECONDS
        while (samples := scrape(broker))[f"{name}_creation_total", frozenset({("listener", "PLAINTEXT")})] == before:
            assert time.monotonic() < deadline
        standing = sum(number for (each, _), number in samples.items() if each == f"{name}_count")
        closed = value(samples, f"{name}_close_total", listener="PLAINTEXT")
        assert value(samples, f"{name}_creation_total", listener="PLAINTEXT") == standing + closed
        assert standing >= 1


def test_connections_are_counted_by_what_clients_say_that_they_are(broker: InProcessBroker) -> None:
    samples = scrape(broker)
    accepted = value(samples, "kafka_server_socket_server_metrics_connection_creation_total", listener="PLAINTEXT")
    assert accepted > 0
    with a_wire_client(broker.port) as client:
        client.ask(ApiVersionsRequest(client_software_name="tester", client_software_version="1.2"), 3)
        ours = [labels for (name, labels) in scrape(broker) if name == "kafka_server_socket_server_metrics_connections_software"]
        assert any(
            {("clientSoftwareName", "tester"), ("clientSoftwareVersion", "1.2"), ("listener", "PLAINTEXT")} < set(each) for each in ours
        )


def test_how_fast_connections_come_is_told_by_listener_and_by_address_with_a_quota(broker: InProcessBroker) -> None:
    rate = "kafka_server_socket_server_metrics_connection_accept_rate"
    quotas = broker.broker.socket_server.quotas
    broker.run(quotas.set_ip_rate, "127.0.0.1", 1_000)
    try:
        with socket.create_connection(("127.0.0.1", broker.port)):
            deadline = time.monotonic() + SECONDS
            while (rate, frozenset({("ip", "127.0.0.1")})) not in (samples := scrape(broker)):
                assert time.monotonic() < deadline
            assert value(samples, rate, ip="127.0.0.1") > 0
            assert value(samples, rate, listener="PLAINTEXT") > 0
            assert value(samples, "kafka_server_socket_server_metrics_broker_connection_accept_rate") > 0
    finally:
        broker.run(quotas.set_ip_rate, "127.0.0.1", None)


def test_refused_records_are_counted_by_what_is_wrong_with_them(broker: InProcessBroker) -> None:
    stats = "kafka_server_brokertopicmetrics_"
    names = [
        f"{stats}{name}records_total"
        for name in ("invalidmessagecrc", "invalidmagicnumber", "invalidoffsetorsequence", "nokeycompactedtopic")
    ]
    broker.run(
        broker.services.administration.topic_admin.create_topics, [NewTopic("compacted", 1, 1, configs={"cleanup.policy": "compact"})]
    )
    before = [value(scrape(broker), name) for name in names]
    damaged = a_batch()
    damaged[-1] ^= 1
    legacy = bytearray(a_batch())
    legacy[16] = 1
    for topic, records in ((TOPIC, damaged), (TOPIC, legacy), (TOPIC, a_batch(control=True)), ("compacted", a_batch(3, key=None))):
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(records))])
        with a_wire_client(broker.port) as client:
            answer = client.ask(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]), 9)
            assert answer.responses[0].partition_responses[0].error_code
    assert [value(scrape(broker), name) for name in names] == [before[0] + 1, before[1] + 1, before[2] + 1, before[3] + 3]


def test_flushes_are_measured(broker: InProcessBroker) -> None:
    def flush() -> None:
        broker.services.data.replica_manager.partition_or_raise(TOPIC, 0).log.flush()

    name = "kafka_log_logflushstats_logflushrateandtimems_count"
    before = value(scrape(broker), name)
    broker.run(flush)
    assert value(scrape(broker), name) == before + 1


def test_health_is_told_and_other_paths_are_not_there(broker: InProcessBroker) -> None:
    assert get(url(broker, "/health/live")) == (200, "live\n")
    assert get(url(broker, "/health/ready")) == (200, "running\n")
    assert get(url(broker, "/health")) == (200, "running\n")
    assert get(url(broker, "/"))[0] == 404
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url(broker, "/metrics"), data=b"x", timeout=SECONDS)
    with refused.value:
        assert refused.value.code == 405


def test_a_scraper_that_takes_gzip_is_given_gzip(broker: InProcessBroker) -> None:
    request = urllib.request.Request(url(broker, "/metrics"), headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"# TYPE kafka_log_log_size gauge" in gzip.decompress(response.read())


def test_several_scrapers_at_once_are_all_answered(broker: InProcessBroker) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(get, [url(broker, "/metrics")] * 8))
    assert [status for status, _ in found] == [200] * 8


def test_clients_that_say_nothing_use_up_no_threads_and_lock_out_no_scraper(broker: InProcessBroker) -> None:
    host, _, port = url(broker, "").removeprefix("http://").partition(":")
    silent = [socket.create_connection((host, int(port)), timeout=SECONDS) for _ in range(MAX_REQUESTS + 3)]
    try:
        assert [each.recv(1) for each in silent[:3]] == [b""] * 3
        assert sum(thread.name.startswith("Thread-") for thread in threading.enumerate()) <= MAX_REQUESTS + 3
        for path in ("/health/live", "/metrics"):
            status, _ = get(url(broker, path))
            assert status == 200
    finally:
        for each in silent:
            each.close()


def test_before_the_start_is_done_and_while_the_broker_stops_it_is_not_ready(tmp_path: Path) -> None:
    async def run() -> list[tuple[int, str]]:
        loop = asyncio.get_running_loop()
        endpoint = MetricsEndpoint(ANY_PORT)
        await endpoint.start()
        found = [await loop.run_in_executor(None, get, f"http://{endpoint.address}{path}") for path in ("/health/ready", "/metrics")]
        endpoint.on_ready()
        found.append(await loop.run_in_executor(None, get, f"http://{endpoint.address}/health/ready"))
        endpoint.on_stopping()
        found.append(await loop.run_in_executor(None, get, f"http://{endpoint.address}/health/ready"))
        found.append(await loop.run_in_executor(None, get, f"http://{endpoint.address}/health/live"))
        await endpoint.close()
        return found

    assert asyncio.run(run()) == [
        (503, "starting\n"),
        (503, "the broker is starting or stopping\n"),
        (200, "running\n"),
        (503, "shutting down\n"),
        (200, "live\n"),
    ]


def test_a_stopped_broker_leaves_neither_port_nor_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with a_broker_in_process(tmp_path, ottla_metrics_listener=ANY_PORT) as running:
        address = url(running, "/metrics")
        host, _, port = url(running, "").removeprefix("http://").partition(":")
        open_connection = socket.create_connection((host, int(port)), timeout=SECONDS)
        assert get(address)[0] == 200
    with open_connection:
        assert open_connection.recv(1) == b""
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=SECONDS)
    assert {thread for thread in threading.enumerate() if thread.is_alive()} <= before


def test_an_address_that_is_taken_stops_the_start_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"127.0.0.1:{taken.getsockname()[1]}"
        config = BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", "ottla.metrics.listener": listener})

        async def start() -> None:
            await Broker(config).start()

        with pytest.raises(CannotStart, match=rf"ottla\.metrics\.listener={listener} cannot be bound: Address already in use"):
            asyncio.run(start())


def test_without_the_key_nothing_is_measured(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path) as running:
        assert running.broker.metrics is None
        produce_one(running)
        assert {route.sample_at for route in running.broker.dispatcher.routes.values()} == {0}


def produce_one(broker: InProcessBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(TOPIC, b"1")
    assert producer.flush(SECONDS) == 0
