"""Runs real clients against a broker, each to the end of its work: the performance tools of Java's client, librdkafka and franz-go."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.loadgen import librdkafka
from benchmarks.loadgen.compiler import built_by_go
from benchmarks.loadgen.runner import LoadFailedError
from tests.support.apache_kafka import process_guard
from tests.support.apache_kafka.java import java_command

MESSAGE_BYTES = 100
_PATIENCE_S = 300.0
_JAVA_OPTIONS = ("-Xmx512m",)  # as Apache's own scripts start the tools
_TOOLS = "org.apache.kafka.tools"
_SENT = re.compile(r"^(\d+) records sent", re.MULTILINE)
_SILENT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Job:
    """The work of a client: to write `records` records of MESSAGE_BYTES to a topic, or to read them from its beginning.

    librdkafka writes for `seconds` instead.
    """

    bootstrap: str
    topic: str
    partitions: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Client:
    """A client in one role. `run` does the job and returns the number of records; raises LoadFailedError, ToolMissingError, NoGoError."""

    key: str
    title: str
    is_producer: bool
    run: Callable[[Job], int]


def _java_produce(codec: str, job: Job) -> int:
    what = ["--topic", job.topic, "--num-records", str(job.records), "--record-size", str(MESSAGE_BYTES), "--throughput", "-1"]
    settings = [f"bootstrap.servers={job.bootstrap}", f"compression.type={codec}"]
    said = _finished(java_command(_JAVA_OPTIONS, f"{_TOOLS}.ProducerPerformance", *what, "--producer-props", *settings))
    return int((_SENT.findall(said) or ["0"])[-1])


def _java_consume(job: Job) -> int:
    what = ["--bootstrap-server", job.bootstrap, "--topic", job.topic, "--messages", str(job.records)]
    options = ["--timeout", str(_SILENT_MS), "--hide-header"]
    said = _finished(java_command(_JAVA_OPTIONS, f"{_TOOLS}.ConsumerPerformance", *what, *options))
    try:
        return int(said.strip().splitlines()[-1].split(",")[4])  # start, end, MB, MB a second, messages
    except (IndexError, ValueError) as odd:
        raise LoadFailedError(f"ConsumerPerformance said {said.strip()[-200:]!r}") from odd


def _librdkafka_produce(job: Job) -> int:
    return librdkafka.produce(job.bootstrap, job.topic, 0, job.seconds, lambda: 0.0).in_all


def _librdkafka_consume(job: Job) -> int:
    librdkafka.consume(job.bootstrap, job.topic, job.records, job.partitions, lambda: 0.0, group=True)
    return job.records


def _franz(role: str, job: Job) -> int:
    said = _finished([str(built_by_go("franz")), role, job.bootstrap, job.topic, str(job.records)])
    return int(json.loads(said)["messages"])


CLIENTS: Sequence[Client] = (
    Client("java-produce", "Java producer", True, partial(_java_produce, "none")),
    Client("java-produce-lz4", "Java producer, lz4", True, partial(_java_produce, "lz4")),
    Client("java-consume", "Java consumer", False, _java_consume),
    Client("librdkafka-produce", "librdkafka producer", True, _librdkafka_produce),
    Client("librdkafka-consume", "librdkafka consumer", False, _librdkafka_consume),
    Client("franz-produce", "franz-go producer", True, partial(_franz, "produce")),
    Client("franz-consume", "franz-go consumer", False, partial(_franz, "consume")),
)


def _finished(command: Sequence[str]) -> str:
    """Run a program to its end; its output. Raises LoadFailedError when it fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        process_guard().watch(client.pid)
        try:
            said, complaints = client.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired as late:
            raise LoadFailedError(f"{command[-1]}: the client has not ended after {_PATIENCE_S:.0f} s") from late
        finally:
            client.kill()
            client.wait()
            process_guard().release(client.pid)
    if client.returncode:
        raise LoadFailedError((complaints.strip() or said.strip())[-500:] or f"the client ended with exit code {client.returncode}")
    return said
