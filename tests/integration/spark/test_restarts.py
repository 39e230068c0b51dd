"""Structured Streaming goes on from its checkpoint: after the job or the broker was killed, while the topic grows, when retention cuts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster import Cluster
from ottla.client.topic_admin import delete_records, grow_topic
from ottla.protocol.topic_partition import TopicPartition
from ottla.validate import session
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.spark import Record, deep, make_topic, needs_spark, skip_if_not_fetched, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = needs_spark

SECONDS = 120.0

KILLED_JOB = """
import sys
from ottla.validate.scratch import scratch_folder
from ottla.validate.session import open_session
from tests.support.spark import CONF
bootstrap, folder = sys.argv[1:]
scratch = scratch_folder()
spark = open_session("local[1]", {**CONF, "spark.local.dir": folder + "/blocks"}, scratch.__enter__())
stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "killed")
stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "50").load()
writer = stream.selectExpr("partition", "offset", "cast(value as string) AS value").writeStream.format("parquet")
writer.option("path", folder + "/out").option("checkpointLocation", folder + "/checkpoint").start().awaitTermination()
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path / "broker") as running:
        yield running


def numbered(first: int, count: int, partition: int = 0) -> list[Record]:
    return [Record(partition, n, 1_700_000_000_000 + n, b"k", str(n).encode()) for n in range(first, first + count)]


def start(spark: SparkSession, broker: BrokerProcess, folder: Path, topic: str, **options: str) -> StreamingQuery:
    """A query of continuous micro-batches from the topic to Parquet in `folder`."""
    settings = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest", **options}
    stream = spark.readStream.format("kafka").options(**settings).load().selectExpr("partition", "offset", "cast(value as string) AS value")
    writer = stream.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def values(spark: SparkSession, folder: Path) -> list[int]:
    """What has come through so far, sorted."""
    if not (folder / "out" / "_spark_metadata").exists():
        return []
    return sorted(int(row.value) for row in spark.read.schema("value string").parquet(str(folder / "out")).collect())


def until(spark: SparkSession, folder: Path, expected: list[int]) -> None:
    eventually(lambda: values(spark, folder) == expected, SECONDS, "everything is there once")


@deep
def test_a_job_that_was_killed_goes_on_without_loss_or_duplicates(
    broker: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make_topic(broker.bootstrap, "killed")
    write(broker.bootstrap, "killed", [numbered(0, 5_000)])
    command = [sys.executable, "-c", KILLED_JOB, broker.bootstrap, str(tmp_path)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TMPDIR": str(temporary)}
    with (tmp_path / "job.log").open("wb") as log:
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True)
    commits = tmp_path / "checkpoint" / "commits"
    try:
        eventually(
            lambda: job.poll() is not None or (commits.exists() and len(list(commits.glob("[0-9]*"))) >= 3), SECONDS, "three batches"
        )
        if job.poll() is not None:
            why = session.why_no_session(tmp_path / "job.log", "local[1]", RuntimeError("it has ended"))
            skip_if_not_fetched(why)
            raise AssertionError(why)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # Python and its JVM
        job.wait()
    (left,) = temporary.iterdir()
    assert list(left.glob("liblz4-java-*.so"))
    assert list((tmp_path / "blocks").glob("blockmgr-*"))  # a folder that the user names wins
    assert not list(left.rglob("blockmgr-*"))
    spark = request.getfixturevalue("spark")  # not before: the job has a JVM of its own
    assert 0 < len(values(spark, tmp_path)) < 5_000
    query = start(spark, broker, tmp_path, "killed")
    try:
        until(spark, tmp_path, list(range(5_000)))
    finally:
        query.stop()


def test_a_broker_that_was_killed_comes_back_under_a_running_query(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, "survivor")
    write(broker.bootstrap, "survivor", [numbered(0, 100)])
    query = start(spark, broker, tmp_path, "survivor")
    try:
        until(spark, tmp_path, list(range(100)))
        broker.kill()
        broker.start()
        write(broker.bootstrap, "survivor", [numbered(100, 100)])
        until(spark, tmp_path, list(range(200)))
        assert query.isActive
    finally:
        query.stop()


def test_partitions_that_are_added_while_a_query_runs_are_read_from_their_beginning(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, "growing")
    write(broker.bootstrap, "growing", [numbered(0, 50)])
    query = start(spark, broker, tmp_path, "growing", **{"kafka.metadata.max.age.ms": "500"})
    try:
        until(spark, tmp_path, list(range(50)))
        with Cluster(broker.bootstrap) as cluster:
            grow_topic(cluster, "growing", 3)
        write(broker.bootstrap, "growing", [[], numbered(50, 50, 1), numbered(100, 50, 2)])
        until(spark, tmp_path, list(range(150)))
    finally:
        query.stop()


def cut(broker: BrokerProcess, topic: str, offset: int) -> None:
    """What retention does: the log begins at this offset."""
    with Cluster(broker.bootstrap) as cluster:
        assert delete_records(cluster, {TopicPartition(topic, 0): offset}) == {TopicPartition(topic, 0): offset}


def behind_a_cut(spark: SparkSession, broker: BrokerProcess, folder: Path, topic: str) -> None:
    """A checkpoint at 50, and a log that begins at 80."""
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, [numbered(0, 50)])
    query = start(spark, broker, folder, topic)
    until(spark, folder, list(range(50)))
    query.stop()
    write(broker.bootstrap, topic, [numbered(50, 50)])
    cut(broker, topic, 80)


def test_a_query_fails_when_retention_cut_what_it_has_not_read(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    behind_a_cut(spark, broker, tmp_path, "lossy")
    query = start(spark, broker, tmp_path, "lossy", failOnDataLoss="true")
    eventually(lambda: not query.isActive, SECONDS, "the query ends")
    assert "data may have been lost" in str(query.exception()) or "failOnDataLoss" in str(query.exception())


@deep
def test_a_query_goes_on_behind_what_retention_cut_when_it_may(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    behind_a_cut(spark, broker, tmp_path, "patient")
    query = start(spark, broker, tmp_path, "patient", failOnDataLoss="false")
    try:
        until(spark, tmp_path, [*range(50), *range(80, 100)])
    finally:
        query.stop()
