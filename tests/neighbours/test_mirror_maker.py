"""MirrorMaker 2 between Ottla and Apache Kafka 3.9.1, both ways: records, offsets, and a group that changes the cluster and goes back."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.tools import run_tool
from tests.support.broker_process import eventually
from tests.support.cluster import a_cluster
from tests.support.command_line import CommandLine
from tests.support.neighbours.artifacts import CONNECT, whole
from tests.support.neighbours.mirror_maker import TO_OTTLA_BY_NAME, a_mirror_maker
from tests.support.neighbours.records import (
    GROUP,
    Place,
    assert_equal,
    committed,
    ends_of,
    records_of,
    rows,
    work,
    write,
)
from tests.support.spark import skip_if_not_fetched

pytestmark = CONNECT.marks

SECONDS, LONG = 120.0, 600.0
PARTITIONS = 2
FIRST, MORE, DURING, AFTER = 20, 2_000, 300, 100
"""Numbers of records: before all else, before the failure, while the first cluster is away, after its return. All are even."""
ROWS = int(os.environ.get("OTTLA_NEIGHBOURS_ROWS", "1000000"))
VALIDATED = ROWS // 20
"""Further records, which `ottla validate` writes and checks."""


def make_topic(apache: ApacheKafka, name: str, partitions: int) -> None:
    made = run_tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", apache.bootstrap, "--create", "--topic", name,
        "--partitions", str(partitions), "--replication-factor", "1",
    )  # fmt: skip
    assert made.returncode == 0, made


def are_equal(one: tuple[str, str], other: tuple[str, str], partitions: int, count: int) -> bool:
    """Whether all records of one are in the other, which must have the same at the same offsets."""
    if sum(ends_of(*other, partitions)) < count:
        return False
    return assert_equal(one, other, partitions) == count


def of(topic: str, end: int) -> dict[Place, int]:
    return {(topic, number): end for number in range(PARTITIONS)}


def values(prefix: str, first: int, count: int) -> set[bytes]:
    return {row.value for row in rows(prefix, range(first, first + count), PARTITIONS, 0)}


@whole
def test_a_group_goes_to_the_other_cluster_and_back(tmp_path: Path) -> None:
    began_ms = int(time.time() * 1000)
    with (
        a_cluster(tmp_path / "ottla", 1) as cluster,
        ApacheKafka(tmp_path / "apache", heap="256m", config={"offsets.topic.num.partitions": "4"}) as apache,
    ):
        ottla, other = cluster.bootstrap, apache.bootstrap
        cluster.create_topic("orders", partitions=PARTITIONS)
        make_topic(apache, "orders", PARTITIONS)
        with a_mirror_maker(ottla, other, tmp_path / "mirror", ["orders"], [GROUP], "-Xmx384m", *QUICK_OPTIONS):
            # A group at the end of a topic is at the end of the copy.
            write(ottla, "orders", rows("ottla", range(FIRST), PARTITIONS, began_ms))
            done = work(ottla, of("orders", FIRST // PARTITIONS))
            assert {value for *_, value in done} == values("ottla", 0, FIRST)
            there = of("ottla.orders", FIRST // PARTITIONS)
            eventually(lambda: committed(other, there) == there, SECONDS, "the offsets of the group are translated")

            # The group stops in the middle of partition 1, and the first cluster dies.
            write(ottla, "orders", rows("ottla", range(FIRST, FIRST + MORE), PARTITIONS, began_ms))
            end = (FIRST + MORE) // PARTITIONS
            stopped = {("orders", 0): end, ("orders", 1): end * 3 // 4}
            done += work(ottla, stopped)
            copied = ("orders", "ottla.orders")
            eventually(lambda: are_equal((ottla, copied[0]), (other, copied[1]), PARTITIONS, FIRST + MORE), SECONDS, "all is copied")

            def is_translated() -> bool:
                return committed(other, there)["ottla.orders", 0] == end

            eventually(is_translated, SECONDS, "the newest offsets of the group are translated")
            cluster.broker(0).kill()

            # Producers and the group go on in the other cluster. The group loses nothing, and reads again what came behind its last sync.
            write(other, "orders", rows("apache", range(DURING), PARTITIONS, began_ms))
            taken = work(other, {**of("ottla.orders", end), **of("orders", DURING // PARTITIONS)})
            assert {value for *_, value in done + taken} == values("ottla", 0, FIRST + MORE) | values("apache", 0, DURING)
            first_again = min(offset for place, offset, _ in taken if place == ("ottla.orders", 1))
            assert FIRST // PARTITIONS <= first_again <= stopped["orders", 1]
            assert not [offset for place, offset, _ in taken if place == ("ottla.orders", 0)]
            assert len(taken) == DURING + end - first_again

            # The first cluster is back: it gets the records of meanwhile, and the offsets of the group in them.
            cluster.broker(0).start()
            here = of("apache.orders", DURING // PARTITIONS)
            eventually(lambda: are_equal((other, "orders"), (ottla, "apache.orders"), PARTITIONS, DURING), SECONDS, "all is copied back")
            eventually(lambda: committed(ottla, here) == here, SECONDS, "the offsets of the group are translated back")
            CommandLine(ottla)("groups", "reset-offsets", GROUP, "--topic", "orders", "--to-latest", "--execute")
            write(ottla, "orders", rows("ottla", range(FIRST + MORE, FIRST + MORE + AFTER), PARTITIONS, began_ms))
            again = work(ottla, {**here, **of("orders", end + AFTER // PARTITIONS)})
            assert {value for *_, value in again} == values("ottla", FIRST + MORE, AFTER)
            assert len(again) == AFTER


def validate(bootstrap: str, topic: str, count: int, report: Path, *options: str) -> None:
    """Write rows with `ottla validate` and check them, or check only; skips the test if Spark's connector cannot be fetched."""
    command = [sys.executable, "-m", "ottla", "validate", "-b", bootstrap, "--rows", str(count), "--topic", topic, "--report", str(report)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, timeout=LONG, check=False)
    skip_if_not_fetched(ended.stderr)
    assert ended.returncode == 0, ended


@whole
@pytest.mark.timeout(1800)  # Spark, on a busy machine
@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="PySpark is not installed")
def test_a_million_records_go_both_ways(tmp_path: Path) -> None:
    half = ROWS // 2
    began_ms = int(time.time() * 1000)
    with a_cluster(tmp_path / "ottla", 1) as cluster, ApacheKafka(tmp_path / "apache") as apache:
        ottla, other = cluster.bootstrap, apache.bootstrap
        validate(ottla, "rows", VALIDATED, tmp_path / "written", "--keep-topic", "--partitions", str(PARTITIONS))
        cluster.create_topic("orders", partitions=PARTITIONS)
        make_topic(apache, "payments", PARTITIONS)
        write(ottla, "orders", rows("order", range(half), PARTITIONS, began_ms))
        write(other, "payments", rows("payment", range(half), PARTITIONS, began_ms))
        with a_mirror_maker(ottla, other, tmp_path / "mirror", ["rows", "orders", "payments"], [GROUP], "-Xmx1g"):
            for bootstrap, copy, count in (
                (other, "ottla.rows", VALIDATED),
                (other, "ottla.orders", half),
                (ottla, "apache.payments", half),
            ):
                eventually(partial(has_all, bootstrap, copy, count), LONG, f"{copy} has {count} records")
        assert assert_equal((ottla, "orders"), (other, "ottla.orders"), PARTITIONS) == half
        assert assert_equal((other, "payments"), (ottla, "apache.payments"), PARTITIONS) == half
        validate(other, "ottla.rows", VALIDATED, tmp_path / "copied", "--verify-only")


def has_all(bootstrap: str, topic: str, count: int) -> bool:
    return sum(ends_of(bootstrap, topic, PARTITIONS)) >= count


@whole
def test_offsets_of_the_copy_are_those_of_the_source_after_a_restart_of_the_mirror(tmp_path: Path) -> None:
    began_ms = int(time.time() * 1000)
    with a_cluster(tmp_path / "ottla", 1) as cluster, ApacheKafka(tmp_path / "apache", heap="256m") as apache:
        ottla, other = cluster.bootstrap, apache.bootstrap
        cluster.create_topic("orders", partitions=PARTITIONS)
        with a_mirror_maker(ottla, other, tmp_path / "mirror", ["orders"], [GROUP], "-Xmx384m", *QUICK_OPTIONS) as mirror:
            write(ottla, "orders", rows("ottla", range(MORE), PARTITIONS, began_ms))
            eventually(lambda: are_equal((ottla, "orders"), (other, "ottla.orders"), PARTITIONS, MORE), SECONDS, "all is copied")
            mirror.kill()
            write(ottla, "orders", rows("ottla", range(MORE, 2 * MORE), PARTITIONS, began_ms))
            mirror.start()

            def is_copied() -> bool:
                return copied_values(other) == [value for number in range(PARTITIONS) for value in values_of(ottla, "orders", number)]

            eventually(is_copied, SECONDS, "all is copied, each record at least once")


@whole
def test_topics_and_groups_move_to_ottla_under_their_names(tmp_path: Path) -> None:
    began_ms = int(time.time() * 1000)
    with a_cluster(tmp_path / "ottla", 1) as cluster, ApacheKafka(tmp_path / "apache", heap="256m") as apache:
        ottla, other = cluster.bootstrap, apache.bootstrap
        make_topic(apache, "orders", PARTITIONS)
        CommandLine(other)("configs", "alter", "topic", "orders", "--set", "retention.ms=86400000")
        options = ("-Xmx384m", *QUICK_OPTIONS)
        with a_mirror_maker(ottla, other, tmp_path / "mirror", ["orders"], [GROUP], *options, settings=TO_OTTLA_BY_NAME):
            write(other, "orders", rows("apache", range(MORE), PARTITIONS, began_ms))
            place = of("orders", MORE // PARTITIONS)
            done = work(other, place)
            eventually(lambda: are_equal((other, "orders"), (ottla, "orders"), PARTITIONS, MORE), SECONDS, "all is copied")
            eventually(lambda: committed(ottla, place) == place, SECONDS, "the group stands at the same offsets")
        line = CommandLine(ottla)
        (topic,) = line("topics", "describe", "orders", "--json").json
        assert topic["configs"]["retention.ms"] == "86400000"
        write(ottla, "orders", rows("ottla", range(AFTER), PARTITIONS, began_ms))
        done += work(ottla, of("orders", (MORE + AFTER) // PARTITIONS))
        assert [value for *_, value in done if value.startswith(b"ottla")] == [value for *_, value in done[MORE:]]
        assert {value for *_, value in done} == values("apache", 0, MORE) | values("ottla", 0, AFTER)


def values_of(bootstrap: str, topic: str, partition: int) -> list[bytes | None]:
    return [each.value for each in records_of(bootstrap, topic, partition)]


def copied_values(bootstrap: str) -> list[bytes | None]:
    """The values of the copy by partition, each where it stands first; empty while there is no topic."""
    try:
        return [value for number in range(PARTITIONS) for value in dict.fromkeys(values_of(bootstrap, "ottla.orders", number))]
    except KafkaException:
        return []
