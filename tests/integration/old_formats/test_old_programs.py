"""Programs of before 2017, in Go with sarama and in Java, write and read beside clients of today."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import confluent_kafka as confluent
import pytest

from tests.support.admin_requests import a_topic, create
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.go_programs import compiled_program, needs_go
from tests.support.old_java import each_old_release, produced_and_consumed
from tests.support.wire_client import a_wire_client

pytestmark = pytest.mark.timeout(900)  # Go compiles its standard library, if no other test had it do so

CODECS = ["none", "gzip", "snappy", "lz4"]
ACKS = ["0", "1", "-1"]
COUNT = 20
GROUP_CONFIG = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1, "group_initial_rebalance_delay_ms": 0}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("old-programs"), broker_id=0, **GROUP_CONFIG) as started:
        yield started


@pytest.fixture(scope="module")
def sarama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_program("sarama", tmp_path_factory.mktemp("go"))


def with_topic(broker: BrokerProcess, topic: str) -> str:
    with a_wire_client(broker.port) as client:
        create(client, a_topic(topic))
    return topic


def check(found: Iterable[tuple[str, str]], codecs: Sequence[str]) -> None:
    """Each producer's records, as (codec, acks and number), must be there once and in their order."""
    producers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for codec, value in found:
        acks, number = value.split()
        producers[codec, acks].append(int(number))
    assert producers == {(codec, acks): list(range(COUNT)) for codec in codecs for acks in ACKS}


def read_by_a_new_group(broker: BrokerProcess, topic: str, wanted: int) -> list[tuple[str, str]]:
    """The records that the only member of a group finds with a client of today."""
    consumer = confluent.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"new-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[tuple[str, str]] = []

    def has_all() -> bool:
        for message in consumer.consume(wanted - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
        return len(found) >= wanted

    try:
        eventually(has_all, 30, "every record is read")
    finally:
        consumer.close()
    return found


@pytest.mark.soak
@needs_go
@pytest.mark.parametrize("version", ["0.8.2.0", "0.10.0.0", "0.10.2.0"])
def test_sarama_writes_with_every_codec_and_acks_and_a_group_of_its_time_reads(broker: BrokerProcess, sarama: Path, version: str) -> None:
    codecs = CODECS[:3] if version == "0.8.2.0" else CODECS  # sarama writes no lz4 in format 0
    topic = with_topic(broker, f"sarama-{version}")
    done = subprocess.run([sarama, version, broker.bootstrap, topic, str(COUNT)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *lines, committed = done.stdout.splitlines()
    wanted = len(codecs) * len(ACKS) * COUNT
    assert int(committed) == wanted
    check((line.partition("\t")[::2] for line in lines), codecs)
    check(read_by_a_new_group(broker, topic, wanted), codecs)


@pytest.mark.parametrize("release", each_old_release)
def test_old_java_clients_write_with_every_codec_and_acks_and_read(broker: BrokerProcess, release: str) -> None:
    topic = with_topic(broker, f"java-{release}")
    wanted = len(CODECS) * len(ACKS) * COUNT
    lines = produced_and_consumed(release, broker.bootstrap, topic, COUNT, wanted)
    check((line.partition("\t")[::2] for line in lines), CODECS)
    check(read_by_a_new_group(broker, topic, wanted), CODECS)
