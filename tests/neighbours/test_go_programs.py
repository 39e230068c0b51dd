"""Programs in Go on Ottla: what exporters of metrics read by sarama and by franz-go, and exactly-once copies by franz-go.

kafka_exporter and others send the requests of `tests/support/go/exporter`, whose libraries are theirs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client import cluster as client_cluster
from ottla.client.topic_admin import delete_records
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.go_programs import compiled_program, needs_go
from tests.support.neighbours.artifacts import whole
from tests.support.read_committed import read_committed

pytestmark = [needs_go, whole, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 3
RECORDS = 100
"""In each partition."""
COMMITTED = {0: 40, 1: 70, 2: 100}
"""Offsets of the group `billing`."""
DELETED_BEFORE = 10
"""The first offset of partition 0."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program."""
    return compiled_program("exporter", tmp_path_factory.mktemp("go"))


def write(cluster: Cluster, topic: str, numbers: range) -> None:
    """One record for each number, in the partitions in turns."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    failures: list[str] = []
    for number in numbers:
        producer.produce(
            topic,
            f"r{number}",
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
        producer.poll(0)
    assert producer.flush(90) == 0
    assert not failures


@contextmanager
def a_member(cluster: Cluster, group: str) -> Iterator[None]:
    """A member of the group, while the context lasts."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0})
    consumer.subscribe(["t"])
    try:
        eventually(lambda: (consumer.poll(0.1), len(consumer.assignment()) == PARTITIONS)[1], what="the assignment", seconds=60)
        yield
    finally:
        consumer.close()


def commit(cluster: Cluster, group: str) -> None:
    """Commit the offsets without joining the group."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition("t", index, offset) for index, offset in COMMITTED.items()], asynchronous=False)
    consumer.close()


def seen(program: Path, library: str, broker: str) -> dict[str, Any]:
    """What the library reads of the cluster, without internal topics and the order of brokers."""
    done = subprocess.run([str(program), library, broker], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        return {"error": done.stderr}
    found: dict[str, Any] = json.loads(done.stdout)
    partitions = {name: [{**each, "isr": sorted(each["isr"])} for each in of] for name, of in found["topics"].items() if name[0] != "_"}
    return {**found, "brokers": sorted(found["brokers"]), "topics": partitions}


def expected(cluster: Cluster, alive: list[int]) -> dict[str, Any]:
    """The cluster as this test has made it."""
    starts = {0: DELETED_BEFORE, 1: 0, 2: 0}
    partitions = [
        {
            "partition": index,
            "start": starts[index],
            "end": RECORDS,
            "leader": cluster.leader_of("t", index),
            "replicas": [(index + step) % PARTITIONS for step in range(PARTITIONS)],
            "isr": alive,
        }
        for index in range(PARTITIONS)
    ]
    lag = {"t": {str(index): RECORDS - offset for index, offset in COMMITTED.items()}}
    groups = {"billing": {"state": "Empty", "members": 0, "lag": lag}, "reading": {"state": "Stable", "members": 1, "lag": {}}}
    return {"brokers": alive, "controller": cluster.controller_id(), "topics": {"t": partitions}, "groups": groups}


def test_exporters_see_offsets_lag_and_groups_also_when_a_broker_is_dead(program: Path, tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 3, group_initial_rebalance_delay_ms=0) as cluster:
        cluster.create_topic("t", replicas=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
        write(cluster, "t", range(PARTITIONS * RECORDS))
        commit(cluster, "billing")
        with client_cluster.Cluster(cluster.bootstrap) as client:
            first = client_cluster.TopicPartition("t", 0)
            assert delete_records(client, {first: DELETED_BEFORE}) == {first: DELETED_BEFORE}
        with a_member(cluster, "reading"):
            for library in ("sarama", "franz"):
                assert seen(program, library, cluster.bootstrap.split(",")[0]) == expected(cluster, [0, 1, 2])
            victim = cluster.broker(2)
            victim.kill()
            for index in range(PARTITIONS):
                cluster.wait_until_isr_is("t", index, 0, 1)
            for library in ("sarama", "franz"):
                address = cluster.broker(0).bootstrap
                eventually(
                    lambda library=library, address=address: seen(program, library, address) == expected(cluster, [0, 1]),
                    what=f"the cluster without broker 2 by {library}",
                    seconds=60,
                )


@contextmanager
def a_copier(program: Path, cluster: Cluster, errors: IO[bytes]) -> Iterator[None]:
    """Copies `source` to `target` in transactions, until the context ends."""
    command = [str(program), "copy", cluster.bootstrap, "source", "target", "copiers"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
            process.stdin.close()  # it ends
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_copy_by_franz_go_has_every_record_once_while_brokers_are_killed(program: Path, tmp_path: Path) -> None:
    with a_cluster(tmp_path / "cluster", 3) as cluster, open(tmp_path / "errors", "wb") as errors:
        for name in ("source", "target"):
            cluster.create_topic(name, partitions=PARTITIONS, min_insync_replicas=2)
        write(cluster, "source", range(300))
        with a_copier(program, cluster, errors):
            written = 300
            for _ in range(3):
                victim = cluster.broker(cluster.leader_of("target", 0))
                victim.kill()
                write(cluster, "source", range(written, written + 600))
                written += 600
                victim.start()
                cluster.wait_until_registered()
            wanted = sorted(f"R{number}" for number in range(written))
            eventually(
                lambda: len(read_committed(cluster, "target", PARTITIONS)) >= len(wanted), what="all records of the copy", seconds=120
            )
        assert sorted(each.value for each in read_committed(cluster, "target", PARTITIONS)) == wanted
