"""Does with the unpacked image what the stock Kafka modules of testcontainers do with an image, without a container engine.

A module starts the image with variables and a command that waits for a script, writes that script into the container once it knows the
port of the host, and waits for a line of the log. The steps are those of these sources:

- Java: org.testcontainers:testcontainers-kafka 2.0.5, KafkaContainer and ConfluentKafkaContainer
- Python: testcontainers 4.15.0, testcontainers.community.kafka, with ZooKeeper and with KRaft
- Go: github.com/testcontainers/testcontainers-go/modules/kafka 0.40.0
- Node.js: @testcontainers/kafka 12.2.0, with ZooKeeper and with KRaft

What is not replayed: users of SCRAM, which a module makes by a command of Apache Kafka in the container.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.packages.containers import container
from tests.packages.dockerfile import Image
from tests.packages.networks import Place
from tests.packages.roots import AS_ROOT
from tests.support.broker_process import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
HOST = "broker"
_COMMON = {
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
_ZOOKEEPER = {"KAFKA_BROKER_ID": "1", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
_KRAFT = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
}
_FORMAT = "kafka-storage format --ignore-formatted -t {} -c /etc/kafka/kafka.properties"
_START_ZOOKEEPER = """\
echo 'clientPort=2181' > zookeeper.properties
echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties
echo 'dataLogDir=/var/lib/zookeeper/log' >> zookeeper.properties
zookeeper-server-start zookeeper.properties &
"""


class Module(NamedTuple):
    """How a module starts an image. `port` is the one that it publishes."""

    variables: Mapping[str, str]
    listeners: str
    port: int
    shell: str
    path: str
    script: str
    waits_for: str


def _kraft(first: int, second: int) -> str:
    return f"PLAINTEXT://0.0.0.0:{first},BROKER://0.0.0.0:{second},CONTROLLER://0.0.0.0:9094"


_ADVERTISE = "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{port},BROKER://{host}:{other}\n"
_CONFLUENT = ". /etc/confluent/docker/bash-config\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch\n"
_RECOVERED = ".*Transitioning from RECOVERY to RUNNING.*"
_STARTED = r".*\[KafkaServer id=\d+\] started.*"
_TMP = str(Path("/tmp") / "testcontainers_start.sh")
MODULES = {
    "java apache": Module(
        {**_COMMON, **_KRAFT}, _kraft(9092, 9093), 9092, "", _TMP, f"#!/bin/bash\n{_ADVERTISE}/etc/kafka/docker/run \n", _RECOVERED
    ),
    "java confluent": Module(
        {**_COMMON, **_KRAFT}, _kraft(9092, 9093), 9092, "", _TMP, f"#!/bin/bash\n{_ADVERTISE}/etc/confluent/docker/run \n", _RECOVERED
    ),
    "python zookeeper": Module(
        {**_COMMON, **_ZOOKEEPER},
        "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
        9093,
        "sh",
        "/tc-start.sh",
        f"#!/bin/bash\n{_START_ZOOKEEPER}export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'\n{_ADVERTISE}{_CONFLUENT}",
        _STARTED,
    ),
    "python kraft": Module(
        {**_COMMON, **_KRAFT, "KAFKA_BROKER_ID": "1"},
        _kraft(9093, 9092),
        9093,
        "sh",
        "/tc-start.sh",
        "#!/bin/bash\nsed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
        f"echo '{_FORMAT.format('MkU3OEVBNTcwNTJENDM2Qk')}' >> /etc/confluent/docker/configure\n{_ADVERTISE}{_CONFLUENT}",
        ".*Kafka Server started.*",
    ),
    "go": Module(
        {**_COMMON, **_KRAFT, "KAFKA_BROKER_ID": "1", "KAFKA_REST_BOOTSTRAP_SERVERS": _kraft(9093, 9092)},
        _kraft(9093, 9092),
        9093,
        "bash",
        "/usr/sbin/testcontainers_start.sh",
        "#!/bin/bash\nsource /etc/confluent/docker/bash-config\n"
        f"{_ADVERTISE}echo Starting Kafka KRaft mode\nsed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
        f"""echo '{_FORMAT.format('"$(kafka-storage random-uuid)"')}' >> /etc/confluent/docker/configure\n"""
        "echo '' > /etc/confluent/docker/ensure\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch",
        _RECOVERED,
    ),
    "node zookeeper": Module(
        {**_COMMON, **_ZOOKEEPER, "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181", "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false"},
        "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
        9093,
        "",
        _TMP,
        f"#!/bin/bash\n{_ADVERTISE}echo '' > /etc/confluent/docker/ensure \n{_START_ZOOKEEPER}/etc/confluent/docker/run \n",
        "ottla is ready",
    ),
    "node kraft": Module(
        {**_COMMON, **_KRAFT, "KAFKA_BROKER_ID": "1"},
        "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
        9093,
        "",
        _TMP,
        f"#!/bin/bash\n{_ADVERTISE}/etc/confluent/docker/run \n",
        "ottla is ready",
    ),
}


@pytest.fixture
def place() -> Iterator[Place]:
    """The network and the host name of a container."""
    with Place(HOST) as made:
        yield made


@pytest.mark.parametrize("name", MODULES)
def test_a_module_starts_the_image_unchanged(name: str, image: Image, place: Place, scratch: Path) -> None:
    module = MODULES[name]
    command = ["sh", "-c", f"while [ ! -f {module.path} ]; do sleep 0.1; done; {module.shell} {module.path}"]
    with container(image, scratch / "broker", place, {**module.variables, "KAFKA_LISTENERS": module.listeners}, command=command) as broker:
        other = 9092 if module.port == 9093 else 9093
        script = module.script.format(port=module.port, host=HOST, other=other)
        # In one step, as an engine puts a file there: the container looks for it all the time.
        put = f"cat > {module.path}.new && chmod 0777 {module.path}.new && mv {module.path}.new {module.path}"
        broker.run("sh", "-c", put, how=AS_ROOT, input=script)
        eventually(lambda: re.search(module.waits_for, broker.said()) is not None, 120)
        bootstrap = f"localhost:{module.port}"
        broker.run("ottla", "produce", "-b", bootstrap, "orders", "--create-topic", input="a record\n")
        assert broker.run("ottla", "consume", "-b", bootstrap, "-e", "orders") == "a record\n"
        assert broker.user_ids() == {"1000"}
        assert "Traceback" not in broker.said()
