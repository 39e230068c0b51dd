"""Provides Spark for tests: a small session of one test process, the pipeline in it, and copies of topics with injected faults."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.cluster import Cluster
from ottla.client.topic_admin import NewTopic, create_topics
from ottla.validate.console import Console
from ottla.validate.plan import Plan, Unusable
from ottla.validate.scratch import scratch_folder
from tests.support.apache_kafka import java_available, process_guard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Options of a JVM that runs for a short time: no second compiler, and no verification of Spark's classes, which takes a fifth of the
processor time of its start."""
CONF = {
    "spark.driver.memory": "800m",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # To compile a query, or one of its expressions, takes longer than to interpret it over a few thousand rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # The same for the JVMs: nothing runs long enough.
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
}
"""Small and quick to start: a test has little data and many queries."""

_CONNECTOR = "*spark-sql-kafka*.jar"
_FETCH_SECONDS = 600
_MISSING = "PySpark is not installed" if importlib.util.find_spec("pyspark") is None else "" if java_available() else "there is no Java 17"

needs_spark = [
    pytest.mark.java,
    pytest.mark.timeout(1800),  # most of which may be another process's turn with Spark
    pytest.mark.usefixtures("only_spark"),
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "Spark can be started"),
    # py4j leaves sockets to the garbage collector, which closes them in whatever test runs by then.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

deep = pytest.mark.skipif(not os.environ.get("OTTLA_VALIDATE_DEEP"), reason="make validate runs it (OTTLA_VALIDATE_DEEP=1)")
"""Tests of a single aspect that an ordinary test covers with others, and tests that take minutes."""


@contextmanager
def a_session() -> Iterator[SparkSession]:
    """A session with two cores and the Kafka connector. Skips the test when the connector cannot be fetched."""
    from ottla.validate import session

    with scratch_folder() as folder:
        process_guard().remove_tree(folder)
        log = folder / "spark.log"
        try:
            with session.talk_to(log):
                conf = {**CONF, "spark.sql.warehouse.dir": str(folder / "warehouse")}
                spark = session.open_session("local[2]", conf, folder)
        except Unusable as reason:
            pytest.skip(str(reason))
        except Exception as error:
            why = session.why_no_session(log, "local[2]", error)
            # They hold the pipe to the JVM, which warns when it is closed: now, while that is ignored.
            traceback.clear_frames(error.__traceback__)
            skip_if_not_fetched(why)
            raise AssertionError(why) from error
        try:
            yield spark
        finally:
            session.close_session(spark)


def fetch_connector() -> None:
    """Have Spark fetch the Kafka connector if it is not in the cache yet, or a test would wait for it. Says so when that fails."""
    from ottla.validate import session

    if _MISSING:
        return
    try:
        cache = session.cache_folder()
        if not any((cache / "jars").glob(_CONNECTOR)):
            said = _ended_submission(session.connector(), cache, session._ivy_settings(cache))
            assert any((cache / "jars").glob(_CONNECTOR)), "\n".join(said.splitlines()[-15:])
    except Exception as reason:  # tests without Spark need no connector
        print(f"Spark's Kafka connector is not there: {reason}", file=sys.stderr)


def _ended_submission(packages: str, cache: Path, settings: Path) -> str:
    """The output of Spark, which fetches these packages and then finds no program. A session takes twice the time."""
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master=local", f"--driver-java-options={QUICK_JVM}"]
    command += [f"--packages={packages}", f"--conf=spark.jars.ivy={cache}", f"--conf=spark.jars.ivySettings={settings}"]
    done = subprocess.run([*command, "--class=none", "none.jar"], capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    return done.stdout + done.stderr


def skip_if_not_fetched(why: str) -> None:
    """Skip the test when that says that the Kafka connector could not be fetched."""
    if "could not be fetched" in why:
        pytest.skip(why.strip().splitlines()[-1])


def validated(spark: SparkSession, plan: Plan, console: Path = Path(os.devnull)) -> dict[str, Any]:
    """The report of a run with this plan; its files are in `plan.report`, and what it says meanwhile in `console`."""
    from ottla.validate.run import stages

    plan.report.mkdir(parents=True)
    with console.open("w") as said:
        verdict = stages(spark, plan, plan.report, Console(said.fileno(), said.fileno()))
    return dict(verdict.report)


def verify_only(plan: Plan, topic: str, report: Path) -> Plan:
    """The plan that verifies a topic of another writer, against the rows of `plan`."""
    return replace(plan, topic=topic, report=report, generates=False)


class Record(NamedTuple):
    """A record of a topic."""

    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes

    @property
    def stream(self) -> int:
        """Which producer of the pipeline wrote it."""
        return int(self.value[9:15])

    @property
    def sequence(self) -> int:
        """Which row it is."""
        return int(self.value[16:28])


Partitions = list[list[Record]]


def records_in(bootstrap: str, topic: str, partitions: int) -> Partitions:
    """All records of a topic, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "copy", "enable.auto.commit": False})
    found: Partitions = [[] for _ in range(partitions)]
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=90)[1] for number in range(partitions)]
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while any(len(found[number]) < end for number, end in enumerate(ends)):
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None
                record = Record(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value())
                found[record.partition].append(record)
    finally:
        consumer.close()
    return found


def write(bootstrap: str, topic: str, partitions: Sequence[Sequence[Record]]) -> None:
    """Write records as they are, each into the partition in whose list it is."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for number, records in enumerate(partitions):
        for record in records:
            producer.produce(topic, record.value, record.key, number, timestamp=record.timestamp)
            producer.poll(0)
    assert producer.flush(30) == 0


def make_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """A new topic that keeps old timestamps; `configs` has keys with underscores for dots."""
    with Cluster(bootstrap) as cluster:
        wanted = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in configs.items()}}
        assert create_topics(cluster, [NewTopic(name, partitions, 1, wanted)]) == {name: None}
