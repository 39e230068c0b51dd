"""Measures the cost of partitions for a broker: `python -m benchmarks.comparisons.partitions [--partitions 10000]`.

Starts a broker, creates topics, writes a batch to every partition, and restarts the broker after a clean stop and after a kill. Prints the
time of each step, and memory and open files after it.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.brokers.process import resident_bytes
from benchmarks.loads.admin import Admin, Topic
from benchmarks.loads.batches import batch_of_size
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

PER_TOPIC = 500
PER_REQUEST = 100
START_SECONDS = 300


class Server:
    """One broker process on `data`."""

    def __init__(self, data: Path, log: Path) -> None:
        self._data = data
        self._log = log
        self.port = 0

    def start(self) -> float:
        """Seconds until it listens."""
        began = time.monotonic()
        settings = {"log.dirs": self._data, "listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "broker.id": 0}
        arguments = [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "ottla", "serve", *arguments]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        found = re.search(r"://[^ ,]*:(\d+)", self.process.stdout.readline())
        if found is None:
            raise SystemExit(f"the broker did not start; see {self._log}")
        self.port = int(found.group(1))
        return time.monotonic() - began

    def end(self, number: signal.Signals) -> float:
        """Seconds until it has ended."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(START_SECONDS)
        return time.monotonic() - began

    @property
    def memory_mb(self) -> float:
        return resident_bytes(self.process.pid) / 1e6

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def write_to_all(server: Server, topics: list[Topic]) -> None:
    """A batch to every partition."""
    batch = batch_of_size(1000, 10, int(time.time() * 1000))
    with Admin("127.0.0.1", server.port) as admin:
        for topic in topics:
            for first in range(0, topic.partitions, PER_REQUEST):
                partitions = [
                    PartitionProduceData(index=at, records=batch) for at in range(first, min(first + PER_REQUEST, topic.partitions))
                ]
                request = ProduceRequest(
                    acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic.name, partition_data=partitions)]
                )
                answer = admin.ask(ApiKey.PRODUCE, request, ProduceResponse)
                assert not any(each.error_code for each in answer.responses[0].partition_responses)


def measure(partitions: int, directory: Path) -> Table:
    """The whole run."""
    table = Table(title=f"{partitions} partitions", title_justify="left")
    for heading in ("step", "s", "memory MB", "KB per partition", "open files"):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    server = Server(directory / "data", directory / "broker.log")
    server_start = server.start()
    idle_mb = server.memory_mb

    def row(step: str, seconds: float) -> None:
        memory_mb = server.memory_mb
        per_partition = (memory_mb - idle_mb) * 1000 / partitions
        table.add_row(step, f"{seconds:.2f}", f"{memory_mb:.0f}", f"{per_partition:.1f}", str(server.open_files))

    row("start, empty", server_start)
    with Admin("127.0.0.1", server.port) as admin:
        began = time.monotonic()
        topics = [admin.create_topic("first", 200)]
        row("create a topic of 200 partitions", time.monotonic() - began)
        began = time.monotonic()
        for number, _ in enumerate(range(200, partitions, PER_TOPIC)):
            topics.append(admin.create_topic(f"topic-{number}", min(PER_TOPIC, partitions - sum(each.partitions for each in topics))))
        row("create the rest", time.monotonic() - began)
    began = time.monotonic()
    write_to_all(server, topics)
    row("a batch to every partition", time.monotonic() - began)
    stopped = server.end(signal.SIGTERM)
    started = server.start()
    row(f"start after a clean stop (which took {stopped:.2f} s)", started)
    began = time.monotonic()
    write_to_all(server, topics)
    row("a batch to every partition", time.monotonic() - began)
    server.end(signal.SIGKILL)
    row_seconds = server.start()
    row("start after a kill", row_seconds)
    server.end(signal.SIGTERM)
    return table


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="partitions-") as directory:
        Console(width=120).print(measure(options.partitions, Path(directory)))


if __name__ == "__main__":
    main()
