"""Apache's TransactionalMessageCopier copies from topic to topic, and aborts at random, while each broker in turn is bounced."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.java import start_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster
from tests.support.judged_broker import JUDGED_BY_APACHE
from tests.support.judged_cluster import a_judged_cluster
from tests.support.read_committed import counting_committed, read_committed

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.timeout(900)]  # JVMs, on a busy machine

PARTITIONS = 2
"""Each has a copier of its own, which writes into the partition of the same number."""
SECONDS = 600.0
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"


def write_input(cluster: Cluster, records: int) -> None:
    """So many into each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(records):
        for partition in range(PARTITIONS):
            producer.produce("input", str(number).encode(), partition=partition)
    assert producer.flush(90) == 0


@contextmanager
def copiers(cluster: Cluster, directory: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """One for each partition of the input; what they say is in files of the directory."""
    started = []
    for partition in range(PARTITIONS):
        options = (
            ("--input-topic", "input"), ("--input-partition", str(partition)), ("--output-topic", "output"),
            ("--broker-list", cluster.bootstrap), ("--transactional-id", f"copier-{partition}"), ("--transaction-size", "10"),
            ("--transaction-timeout", "20000"), ("--consumer-group", f"copier-{partition}"),
        )  # fmt: skip
        flags = ("--enable-random-aborts", *(["--use-group-metadata"] if partition % 2 else []))
        with (directory / f"copier-{partition}.log").open("w") as output:
            started.append(start_tool(COPIER, *[word for option in options for word in option], *flags, output=output))
    try:
        yield started
    except BaseException:
        for path in sorted(directory.glob("copier-*.log")):
            print(f"--- {path.name}\n{path.read_text()[-4_000:]}")
        raise
    finally:
        for copier in started:
            copier.kill()
            copier.communicate()
            process_guard().release(copier.pid)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_every_record_is_copied_once_while_each_broker_in_turn_is_bounced(how: str, tmp_path: Path) -> None:
    # Twelve bounces of Apache Kafka take longer than a test may on two cores.
    records, rounds = (4_000, 1) if JUDGED_BY_APACHE else (20_000, 4)
    with a_judged_cluster(tmp_path / "cluster") as cluster:
        cluster.create_topic("input", partitions=PARTITIONS, min_insync_replicas=2)
        cluster.create_topic("output", partitions=PARTITIONS, min_insync_replicas=2)
        write_input(cluster, records)
        with copiers(cluster, tmp_path) as started, counting_committed(cluster, "output", PARTITIONS) as copied:
            for bounce in range(3 * rounds):
                share = records * PARTITIONS * (bounce + 1) // (3 * rounds + 2)
                eventually(lambda share=share: copied() >= share, SECONDS, f"{share} records are copied")
                assert any(copier.poll() is None for copier in started), "the copiers ended before the brokers were bounced"
                broker = cluster.broker(bounce % 3)
                getattr(broker, how)()
                broker.start()
                for partition in range(PARTITIONS):
                    cluster.wait_until_isr_is("output", partition, 0, 1, 2)
            assert [copier.wait(SECONDS) for copier in started] == [0] * PARTITIONS
        found = read_committed(cluster, "output", PARTITIONS)
        for partition in range(PARTITIONS):
            assert [each.value for each in found if each.partition == partition] == [str(number) for number in range(records)]
        everything = read_committed(cluster, "output", PARTITIONS, "read_uncommitted")
        assert len(everything) > len(found), "nothing was aborted"
