"""Every key that Apache Kafka changes without a restart: set on a running broker it takes effect, or the log says that it has none here.

All keys are set in one request for each level, looked at, and taken away again.
"""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from ottla.config.broker_keys import BROKER_KEYS
from ottla.config.schema.key import DynamicScope
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.support.admin_requests import BROKER, DELETE, OK, SET, a_topic, create, said
from tests.support.broker_process import eventually
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "configs.json").read_text())
DYNAMIC: list[str] = GOLDEN["dynamic"]["AllDynamicConfigs"]
WITHOUT_EFFECT = sorted(name for name in DYNAMIC if not BROKER_KEYS[name].effective)
OF_TLS = {name for name in DYNAMIC if name.startswith("ssl.")} | {"principal.builder.class"}
"""test_certificate_renewal.py"""
OF_SASL = {name for name in DYNAMIC if name.startswith("sasl.")}
"""A listener that is added and a new connection to a broker take them: test_dynamic_listeners.py"""
OF_TIERED_STORAGE = {name for name in DYNAMIC if name.startswith(("remote.", "log.local."))}
"""Read at each use, by a broker with tiered storage: tests/unit/replication/remote, tests/unit/storage"""
ELSEWHERE = {"listeners", "advertised.listeners", "listener.security.protocol.map"} | OF_TLS | OF_SASL | OF_TIERED_STORAGE
"""test_dynamic_listeners.py"""

VALUES = {
    "background.threads": "12",
    "compression.gzip.level": "3",
    "compression.lz4.level": "4",
    "compression.type": "lz4",
    "compression.zstd.level": "5",
    "log.cleaner.backoff.ms": "16000",
    "log.cleaner.dedupe.buffer.size": "33554432",
    "log.cleaner.delete.retention.ms": "1001",
    "log.cleaner.io.buffer.load.factor": "0.8",
    "log.cleaner.io.buffer.size": "262144",
    "log.cleaner.io.max.bytes.per.second": "1000000.0",
    "log.cleaner.max.compaction.lag.ms": "2000000",
    "log.cleaner.min.cleanable.ratio": "0.4",
    "log.cleaner.min.compaction.lag.ms": "1002",
    "log.cleaner.threads": "2",
    "log.cleanup.policy": "compact",
    "log.flush.interval.messages": "10001",
    "log.flush.interval.ms": "10002",
    "log.index.interval.bytes": "4097",
    "log.index.size.max.bytes": "1048576",
    "log.message.downconversion.enable": "false",
    "log.message.timestamp.after.max.ms": "3600000",
    "log.message.timestamp.before.max.ms": "3600001",
    "log.message.timestamp.type": "LogAppendTime",
    "log.preallocate": "true",
    "log.retention.bytes": "1000003",
    "log.retention.ms": "1000004",
    "log.roll.jitter.ms": "5",
    "log.roll.ms": "1000006",
    "log.segment.bytes": "1000007",
    "log.segment.delete.delay.ms": "1008",
    "max.connection.creation.rate": "1009",
    "max.connections": "1010",
    "max.connections.per.ip": "1011",
    "max.connections.per.ip.overrides": "127.0.0.9:12,localhost:13",
    "message.max.bytes": "1000013",
    "min.insync.replicas": "2",
    "num.io.threads": "10",
    "num.network.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
    "num.replica.fetchers": "2",
    "producer.id.expiration.ms": "1000014",
    "transaction.partition.verification.enable": "False",
    "unclean.leader.election.enable": "true",
}

SEEN = {"max.connections.per.ip.overrides": {"127.0.0.9": 12, "127.0.0.1": 13}}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with a_broker_in_process(tmp_path_factory.mktemp("broker"), broker_id=0) as running:
        yield running


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        create(connected, a_topic("t"))
        yield connected


def limits(broker: InProcessBroker) -> Any:
    return broker.broker.socket_server.limits


def a_log(broker: InProcessBroker) -> Any:
    (log,) = [log for log in broker.services.data.log_manager.all_logs() if log.topic_partition.topic == "t"]
    return log


def expiration_ms(broker: InProcessBroker) -> int:
    broker.services.data.log_manager.remove_expired_producers()  # every producer.id.expiration.check.interval.ms
    return int(a_log(broker).producer_state.producer_id_expiration_ms)


def worker_threads(broker: InProcessBroker) -> int:
    """How many there are when there is more to do than they can."""
    busy = threading.Event()
    jobs = [broker.services.workers.submit(busy.wait, 60) for _ in range(50)]
    found = sum(thread.name.startswith("ottla-worker") for thread in threading.enumerate())
    busy.set()
    wait(jobs)
    return found


AT_WORK: dict[str, Callable[[InProcessBroker], object]] = {
    "background.threads": worker_threads,
    "max.connection.creation.rate": lambda broker: limits(broker).max_connection_creation_rate,
    "max.connections": lambda broker: limits(broker).max_connections,
    "max.connections.per.ip": lambda broker: limits(broker).max_connections_per_ip,
    "max.connections.per.ip.overrides": lambda broker: limits(broker).max_connections_per_ip_overrides,
    "num.io.threads": lambda broker: broker.broker.socket_server.request_channel.slots,
    "num.network.threads": lambda broker: len(broker.broker.socket_server.processors),
    "producer.id.expiration.ms": expiration_ms,
    "transaction.partition.verification.enable": lambda broker: a_log(broker).context.verifies_transactions(),
}
"""Where a value is to be seen that is not read from the configuration whenever it is needed."""


def change_all(client: WireClient, node: str, changes: dict[str, str | None]) -> None:
    configs = [
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value) for name, value in changes.items()
    ]
    resources = [AlterConfigsResource(resource_type=BROKER, resource_name=node, configs=configs)]
    (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=resources), 1).responses
    assert said(answer) == OK, said(answer)


def in_force(broker: InProcessBroker) -> dict[str, str]:
    """What is at work, by broker key, as text."""
    config = broker.services.config
    of_log = {entry.name: entry.value for entry in a_log(broker).config.describe()}
    found = {}
    for name in VALUES:
        key = BROKER_KEYS[name]
        probe = AT_WORK.get(name)
        if probe is not None:
            found[name] = str(probe(broker))
        elif key.topic is not None:
            found[name] = str(of_log[key.topic])
        else:
            found[name] = str(config[key])
    return found


def test_the_table_has_every_key_with_an_effect() -> None:
    assert set(VALUES) | ELSEWHERE | set(WITHOUT_EFFECT) >= set(DYNAMIC) - {"log.message.timestamp.difference.max.ms"}


@pytest.mark.parametrize("node", ["0", ""], ids=["this broker", "all brokers"])
def test_every_dynamic_key_takes_effect_without_a_restart(node: str, client: WireClient, broker: InProcessBroker) -> None:
    before = broker.run(in_force, broker)
    change_all(client, node, dict(VALUES))
    wanted = {name: str(SEEN.get(name, value)) for name, value in VALUES.items()}
    eventually(lambda: broker.run(in_force, broker) == wanted)
    change_all(client, node, dict.fromkeys(VALUES))
    eventually(lambda: broker.run(in_force, broker) == before)


def test_a_key_without_effect_is_named_in_the_log(client: WireClient, broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    per_cluster = [name for name in WITHOUT_EFFECT if BROKER_KEYS[name].dynamic is DynamicScope.CLUSTER_WIDE]
    of_listener = ["listener.name.other.ssl.keymanager.algorithm", "listener.name.other.ssl.trustmanager.algorithm"]
    values = {name: value_of(name) for name in per_cluster}
    change_all(client, "", {name: value for name, value in values.items() if value is not None})
    change_all(client, "0", dict.fromkeys(of_listener, "/etc/kafka/key.pem"))
    eventually(lambda: all(name in caplog.text for name in (*values, *of_listener)))
    assert "without effect in this server" in caplog.text


def value_of(name: str) -> str:
    (found,) = [each["default"] for each in GOLDEN["broker"] if each["name"] == name]
    return found or "0"
