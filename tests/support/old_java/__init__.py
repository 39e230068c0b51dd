"""Runs the Java clients and tools of Apache Kafka 0.8.2 and 0.10.2.

The jars are fetched by Maven into `OLD_KAFKA_LIBS`, or `~/.cache/ottla`, once for each release.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.apache_kafka.jars import ensure_jars_of
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.marks import needs_jars_in
from tests.support.apache_kafka.programs import in_class_path

OLD_RELEASES = ("0.8.2", "0.10.2")
_CONSUMERS = {"0.8.2": "kafka.tools.SimpleConsumerShell", "0.10.2": "kafka.tools.ConsoleConsumer"}
_PROGRAM = Path(__file__).parents[1] / "java" / "OldClient.java"
_LOG4J = Path(__file__).parents[1] / "apache_kafka" / "log4j.properties"
_LIBS = Path(os.environ.get("OLD_KAFKA_LIBS") or Path.home() / ".cache" / "ottla")
_SECONDS = 60.0
_SILENT_MS = "20000"


def _libs(release: str) -> Path:
    return _LIBS / f"kafka-{release}"


each_old_release = [
    pytest.param("0.8.2", marks=[pytest.mark.soak, *needs_jars_in(_libs("0.8.2"))]),
    pytest.param("0.10.2", marks=needs_jars_in(_libs("0.10.2"))),
]
"""Parameters of tests that run these clients. `make test` runs one release: each has jars of its own to fetch, and JVMs to start."""


def ensure_old_jars() -> None:
    """Fetch the jars of the releases whose tests run, if they are not there yet. Raises ToolMissingError."""
    for release in OLD_RELEASES if "OTTLA_SOAK" in os.environ else ("0.10.2",):
        _jars(release)


def _jars(release: str) -> Path:
    return ensure_jars_of(Path(__file__).with_name(f"kafka-{release}.xml"), _libs(release))


def java_of(release: str, program: str | Path) -> list[str]:
    """The command line that runs a class of this release, or the program in a source file. Raises ToolMissingError."""
    return ["java", *QUICK_OPTIONS, "-Xmx256m", f"-Dlog4j.configuration=file:{_LOG4J}", *in_class_path(program, _jars(release))]


def consumer_offsets(release: str, zookeeper: str, group: str, topic: str) -> list[list[str]]:
    """The columns that the tool of that time prints of each partition: group, topic, partition, offset, size of the log, lag, owner.

    Raises ToolMissingError and subprocess.TimeoutExpired.
    """
    arguments = ["--zookeeper", zookeeper, "--group", group, "--topic", topic, "--retry.backoff.ms", "200"]
    command = [*java_of(release, "kafka.tools.ConsumerOffsetChecker"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [line.split() for line in done.stdout.splitlines() if line.startswith(f"{group} ")]


def produced_and_consumed(release: str, bootstrap: str, topic: str, count: int, wanted: int) -> list[str]:
    """Write `count` records with each codec and acks; the first `wanted` records of the topic, as lines of key, tab and value.

    Raises ToolMissingError and subprocess.TimeoutExpired.
    """
    consumer = [_CONSUMERS[release], *_where(release, bootstrap), "--topic", topic]
    limits = ["--max-messages", str(wanted), "--property", "print.key=true"]
    command = [*java_of(release, _PROGRAM), bootstrap, topic, str(count), *consumer, *limits]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def _where(release: str, bootstrap: str) -> Sequence[str]:
    """The arguments of the consumer that name the broker. It begins at the first record."""
    if release == "0.8.2":
        return ["--broker-list", bootstrap, "--partition", "0"]
    return ["--bootstrap-server", bootstrap, "--from-beginning", "--timeout-ms", _SILENT_MS]
