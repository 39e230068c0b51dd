"""The share consumer of franz-go has the same outcome on Apache Kafka 4.4 and here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka_4 import needs_apache_kafka_4
from tests.support.apache_kafka_4.node import ApacheKafka4
from tests.support.broker_process import a_broker
from tests.support.go_programs import compiled_program, needs_go
from tests.support.share_clients import begin_group
from tests.support.share_members import produce
from tests.support.wire_client import a_wire_client

RECORDS = 9
EXPECTED = {
    "implicit": [f"{offset} 1 ACCEPT" for offset in range(RECORDS)],
    "explicit": sorted(
        [f"{offset} 1 {('ACCEPT', 'RELEASE', 'REJECT')[offset % 3]}" for offset in range(RECORDS)]
        + [f"{offset} 2 ACCEPT" for offset in range(1, RECORDS, 3)]
    ),
    "renew": ["0 1 ACCEPT"],
}

pytestmark = [needs_go, pytest.mark.soak, pytest.mark.timeout(900)]  # Go compiles its standard library, a minute of processor time


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_program("shares", tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with a_broker(
        tmp_path_factory.mktemp("ottla"), group_share_min_record_lock_duration_ms=1_000, group_share_record_lock_duration_ms=2_000
    ) as broker:
        yield broker.port


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    config = {"group.share.min.record.lock.duration.ms": "1000", "group.share.record.lock.duration.ms": "2000"}
    with ApacheKafka4(tmp_path_factory.mktemp("apache"), config) as node:
        yield node.port


@pytest.mark.parametrize("mode", ["implicit", "explicit", "renew"])
@pytest.mark.parametrize("broker", ["ottla", pytest.param("apache", marks=needs_apache_kafka_4)])
def test_each_record_has_its_answer(program: Path, broker: str, mode: str, request: pytest.FixtureRequest) -> None:
    port: int = request.getfixturevalue(broker)
    with a_wire_client(port) as client:
        begin_group(client, mode, mode)
        produce(client, mode, 1 if mode == "renew" else RECORDS)
    count = len({line.split()[0] for line in EXPECTED[mode]})
    command = [program, f"127.0.0.1:{port}", mode, mode, mode, str(count)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == EXPECTED[mode]
