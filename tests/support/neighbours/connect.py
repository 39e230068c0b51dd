"""Runs workers of Kafka Connect in distributed mode, which copy lines of a file through a topic into another file.

Workers keep their REST port over restarts. Sources write in transactions (KIP-618), so that readers of committed records get a line once,
also after the death of a worker.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.apache_kafka.java import QUICK_OPTIONS, JavaServer
from tests.support.apache_kafka.ports import free_ports
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster
from tests.support.neighbours.artifacts import CONNECT, LOG4J

_START_SECONDS = 120.0
_ASK_SECONDS = 10.0
_SECONDS = 120.0
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_FILES = "org.apache.kafka.connect.file.FileStream"
_SETTINGS = {
    "group.id": "workers",
    "key.converter": _STRINGS,
    "value.converter": _STRINGS,
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "offset.storage.partitions": "2",
    "status.storage.partitions": "2",
    "offset.flush.interval.ms": "500",
    "exactly.once.source.support": "enabled",
    "consumer.isolation.level": "read_committed",
    "plugin.discovery": "service_load",  # to look through all jars would take seconds
    # A test waits for the tasks of a dead worker.
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "1000",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "1000",
}


class Worker:
    """One worker, in a process of its own."""

    def __init__(self, cluster: Cluster, directory: Path, name: str) -> None:
        (self.port,) = free_ports(1)
        replicas = str(min(3, len(cluster.brokers)))
        settings = {
            **_SETTINGS,
            "bootstrap.servers": cluster.bootstrap,
            "listeners": f"http://{self.id}",
            **{f"{topic}.storage.replication.factor": replicas for topic in ("config", "offset", "status")},
        }
        properties = directory / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        self._command = [
            "java", "-Xmx256m", *QUICK_OPTIONS, "-cp", f"{CONNECT.jars()}/*", f"-Dlog4j.configuration=file:{LOG4J}",
            f"-Djava.io.tmpdir={directory}", "org.apache.kafka.connect.cli.ConnectDistributed", str(properties),
        ]  # fmt: skip
        self._process = JavaServer(f"worker {name}", directory / f"{name}.log")

    @property
    def id(self) -> str:
        """The name of the worker in the state of tasks."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start the process and return at once."""
        self._process.launch(self._command)

    def wait_until_ready(self) -> None:
        """Until it is a member of its group and answers."""
        self._process.wait_until(lambda: self._tried("GET", "/connectors")[0] == http.client.OK, _START_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: it finishes its tasks and leaves the group."""
        self._process.end()

    def said(self) -> str:
        """The log of its last run."""
        return self._process.said()

    def put_connector(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector. While workers rebalance they refuse it, and it is sent again."""
        eventually(lambda: self._tried("PUT", f"/connectors/{name}/config", config)[0] in {200, 201}, _SECONDS, f"{name} is created")

    def worker_of(self, connector: str) -> str:
        """The id of the worker that runs the only task of the connector; waits until one does."""

        def found() -> str:
            status, answer = self._tried("GET", f"/connectors/{connector}/status")
            tasks = answer["tasks"] if status == http.client.OK else []
            return str(tasks[0]["worker_id"]) if tasks and tasks[0]["state"] == "RUNNING" else ""

        return str(eventually(found, _SECONDS, f"the task of {connector} runs"))

    def _tried(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and document of an answer; 0 and None while the worker does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_SECONDS)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()


class FileCopy:
    """Two connectors: lines of a file go into the topic `lines`, and from there into another file."""

    def __init__(self, directory: Path) -> None:
        self._source, self._sink = directory / "source.txt", directory / "sink.txt"
        self.written = 0

    def begin(self, worker: Worker) -> None:
        """Create both; returns when their tasks run."""
        self._source.touch()
        source = {"connector.class": f"{_FILES}SourceConnector", "file": str(self._source), "topic": "lines", "batch.size": "100"}
        sink = {"connector.class": f"{_FILES}SinkConnector", "file": str(self._sink), "topics": "lines"}
        for name, config in (("source", source), ("sink", sink)):
            worker.put_connector(name, {**config, "tasks.max": "1"})
        for name in ("source", "sink"):
            worker.worker_of(name)

    def write(self, count: int) -> None:
        """Append lines to the source."""
        numbers = range(self.written, self.written + count)
        with self._source.open("a", encoding="utf-8") as file:
            file.writelines(f"<{number}>\n" for number in numbers)
        self.written += count

    def wait(self) -> None:
        """Until all lines are in the sink."""
        eventually(lambda: len(set(self.sunk())) == self.written, _SECONDS, f"{self.written} lines are copied")

    def sunk(self) -> list[int]:
        """The numbers in the sink. A worker that dies may leave half a line, behind which the next worker writes."""
        text = self._sink.read_text(encoding="utf-8") if self._sink.exists() else ""
        return [int(number) for number in re.findall(r"<(\d+)>", text)]


@contextmanager
def workers(cluster: Cluster, directory: Path, count: int) -> Iterator[list[Worker]]:
    """Running workers of one group."""
    directory.mkdir()
    started = [Worker(cluster, directory, f"worker-{number}") for number in range(count)]
    try:
        for worker in started:
            worker.launch()
        for worker in started:
            worker.wait_until_ready()
        yield started
        for worker in started:
            worker.stop()
    except BaseException:
        for worker in started:
            print(f"--- a worker of Kafka Connect\n{worker.said()[-6_000:]}")
        raise
    finally:
        for worker in started:
            worker.kill()
