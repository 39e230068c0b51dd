"""Measures the times for which people wait: `python -m benchmarks.comparisons.user_times [console] [drain] [waits]`.

- `console`: the overview of a cluster in Chromium until it is complete, with all brokers and with a dead one; the bytes that a page loads.
- `drain`: the latency of a producer before and while `ottla brokers drain` empties one of three brokers.
- `waits`: a suite of tests that end after timeouts, retention and compaction, with time at will.

`--topics`, `--groups`, `--partitions`, `--at-once`, `--rate` and `--tests` name other sizes. Prints a line for each. The brokers, the
clients and the browser share the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.client.cluster import Cluster as Client
from ottla.client.topic_admin import NewTopic, create_topics
from tests.support.chromium import Page, a_page
from tests.support.cluster import Cluster, a_cluster
from tests.support.running_console import a_console

_ROOT: Final = Path(__file__).parents[2]
_BROKERS: Final = 3
_TURNS: Final = 5
_TOPICS_AT_ONCE: Final = 100
_QUIET_SECONDS: Final = 11.0
"""The console keeps the answers about disks and findings for ten seconds."""
_COMPLETE: Final = (
    "document.querySelector('.health .note a') && document.querySelectorAll('[aria-label=\"Log directories\"] .space .row').length > 1"
    " && ![...document.querySelectorAll('.row > *, dd')].some((one) => one.textContent === '…')"
)
_LOADED: Final = "performance.getEntries().reduce((sum, one) => sum + (one.transferSize ?? 0), 0)"
_STEADY_SECONDS: Final = 20.0


def _make_topics(cluster: Cluster, *topics: NewTopic) -> None:
    with Client(cluster.bootstrap) as client:
        for first in range(0, len(topics), _TOPICS_AT_ONCE):
            failures = [error for error in create_topics(client, topics[first : first + _TOPICS_AT_ONCE]).values() if error is not None]
            if failures:
                raise failures[0]


def console(topics: int, groups: int) -> Iterator[str]:
    """The times of the overview, and its bytes."""
    with tempfile.TemporaryDirectory() as folder, a_cluster(Path(folder), _BROKERS) as cluster:
        _make_topics(cluster, *(NewTopic(f"topic-{number:05}", 2, 2) for number in range(topics)))
        for number in range(groups):
            group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"group-{number:02}"})
            group.commit(offsets=[TopicPartition(f"topic-{number % topics:05}", 0, 0)], asynchronous=False)
            group.close()
        with a_page(Path(folder, "profile")) as page:
            with a_console(cluster.bootstrap) as running:
                found, loaded = _overviews(page, running.address)
                yield f"overview of {_BROKERS} brokers, {topics:,} topics, {groups} groups: {_told(found)}; {loaded / 1024:.0f} KiB loaded"
            cluster.broker(_BROKERS - 1).kill()
            with a_console(cluster.bootstrap) as running:
                found, _ = _overviews(page, running.address)
                yield f"the same with one dead broker: {_told(found)}"


def _told(seconds: list[float]) -> str:
    return f"complete after {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s of {len(seconds)}"


def _overviews(page: Page, address: str) -> tuple[list[float], int]:
    """The seconds of each turn, none of which finds an answer that was kept; the bytes of the first."""
    seconds = []
    loaded = 0
    for turn in range(_TURNS):
        page.open("about:blank")
        began = time.perf_counter()
        page.open(address)
        page.wait_for(_COMPLETE)
        seconds.append(time.perf_counter() - began)
        if turn == 0:
            loaded = int(page.run(_LOADED))
        time.sleep(_QUIET_SECONDS)
    return seconds, loaded


class _SteadyProducer:
    """Writes to all partitions of a topic at a steady rate with acks=all, and notes the latency of each record, ms."""

    def __init__(self, bootstrap: str, topic: str, rate: float) -> None:
        self.latencies: list[float] = []
        self.failures: list[KafkaError] = []
        self._topic = topic
        self._gap = 1 / rate
        self._is_stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True})
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Writes until the block ends."""
        self._thread.start()
        yield
        self._is_stopping.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.perf_counter()
        while not self._is_stopping.is_set():
            self._producer.produce(self._topic, bytes(1000), on_delivery=self._on_delivery)
            due += self._gap
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)  # returns after each delivery
        self._producer.flush(60)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.latencies.append((message.latency() or 0.0) * 1000)

    def taken(self) -> list[float]:
        """The latencies since the last call, in order of their size."""
        found, self.latencies = self.latencies, []
        return sorted(found)


def drain(partitions: int, rate: float, at_once: int) -> Iterator[str]:
    """The latency of a producer before and during a drain."""
    with tempfile.TemporaryDirectory() as folder, a_cluster(Path(folder), _BROKERS) as cluster:
        count = partitions * _BROKERS // 2 // 10  # each has two replicas
        _make_topics(cluster, NewTopic("steady", 6, 2), *(NewTopic(f"topic-{number:05}", 10, 2) for number in range(count)))
        producer = _SteadyProducer(cluster.bootstrap, "steady", rate)
        with producer.running():
            time.sleep(_STEADY_SECONDS / 4)
            producer.taken()
            time.sleep(_STEADY_SECONDS)
            before = producer.taken()
            began = time.perf_counter()
            command = [
                sys.executable,
                "-m",
                "ottla",
                "brokers",
                "drain",
                str(_BROKERS - 1),
                "-b",
                cluster.bootstrap,
                "--at-once",
                str(at_once),
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=_ROOT)
            seconds = time.perf_counter() - began
            during = producer.taken()
        yield (
            f"drain of a broker with {partitions:,} partitions, {at_once} at once: {seconds:.1f} s; p99 of a producer of {rate:g} records/s"
            f" {_p99(before):.1f} ms before, {_p99(during):.1f} ms meanwhile ({_p99(during) / _p99(before):.2f} ×),"
            f" {len(producer.failures)} records refused"
        )


def _p99(ordered: list[float]) -> float:
    return ordered[int(len(ordered) * 0.99)]


def waits(tests: int) -> Iterator[str]:
    """The time of a suite of tests that wait."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "benchmarks/test_suite/waits.py"]
    environment = {**os.environ, "SUITE_TESTS": str(tests)}
    done = subprocess.run(command, cwd=_ROOT, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout)
    yield f"{tests} tests that wait for timeouts, retention and compaction: {time.perf_counter() - began:.1f} s"


def main() -> None:
    """The chosen measurements, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="*", metavar="console, drain, waits")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=1000, help="of the broker that is drained")
    parser.add_argument("--at-once", type=int, default=100, help="partitions that move at a time")
    parser.add_argument("--rate", type=float, default=200.0, help="of the producer, records a second")
    parser.add_argument("--tests", type=int, default=50)
    options = parser.parse_args()
    measured: dict[str, Callable[[], Iterator[str]]] = {
        "console": lambda: console(options.topics, options.groups),
        "drain": lambda: drain(options.partitions, options.rate, options.at_once),
        "waits": lambda: waits(options.tests),
    }
    if unknown := set(options.wanted) - measured.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}: there are {', '.join(measured)}")
    for name in options.wanted or measured:
        for line in measured[name]():
            print(line, flush=True)


if __name__ == "__main__":
    main()
