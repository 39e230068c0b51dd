"""Kafka Streams 4 in exactly_once_v2 on Ottla; tests/cluster/transactions has the same with Kafka Streams 3.9.1."""

from __future__ import annotations

from pathlib import Path

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.command_line import CommandLine
from tests.support.kafka_streams.application import Application, Input, an_application, check_output, check_rounds, wait_for_output
from tests.support.neighbours.artifacts import STREAMS, whole

pytestmark = STREAMS.marks

QUICK = {"group_min_session_timeout_ms": 500, "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500}


@whole
def test_the_output_is_the_input_counted_and_joined_once(tmp_path: Path) -> None:
    libs = STREAMS.jars()
    with a_cluster(tmp_path / "cluster", 1, **QUICK) as cluster:
        check_rounds(cluster, tmp_path / "application", "in_memory", 0, 100, libs)


@whole
def test_the_output_is_right_while_the_application_and_brokers_are_killed(tmp_path: Path) -> None:
    libs = STREAMS.jars()
    with a_cluster(tmp_path / "cluster", 3, **QUICK) as cluster:
        check_rounds(cluster, tmp_path / "application", "rocksDB", 2, 300, libs)


def tasks_with_stores(directory: Path) -> set[str]:
    """The tasks whose stores an instance has, its own and those of other instances."""
    return {each.parent.name for each in directory.glob("application/*/*") if each.is_dir()}


def repartitioned_starts(cluster: Cluster) -> list[int]:
    """The start offsets of the topic through which words go to the instances that count them."""
    line = CommandLine(cluster.bootstrap)
    (topic,) = [name for name in line("topics", "list", "--json", "--internal").json if name["topic"].endswith("-repartition")]
    return [each["earliest"] for each in line("topics", "offsets", topic["topic"], "--json").json]


@whole
def test_another_instance_goes_on_with_its_standby_stores(tmp_path: Path) -> None:
    libs, one, two = STREAMS.jars(), tmp_path / "one", tmp_path / "two"
    with a_cluster(tmp_path / "cluster", 3, **QUICK) as cluster:
        given = Input(cluster, seed=1)
        with an_application(cluster, one, "rocksDB", libs, standbys=1) as first:
            second = Application(cluster, two, "rocksDB", libs, standbys=1)
            second.start()
            try:
                given.write(200)
                eventually(lambda: len(tasks_with_stores(one)) == len(tasks_with_stores(two)) == 4, what="both have all stores")
                wait_for_output(cluster, 0.9, given)
                first.kill()
                given.write(200)
                wait_for_output(cluster, 1.0, given)
                eventually(lambda: min(repartitioned_starts(cluster)) > 0, what="Streams has deleted what it has read")
                second.stop()
            finally:
                second.kill()
        check_output(cluster, given)
