"""Measures how a host's throughput grows with its brokers: `python -m benchmarks.comparisons.host [--sides apache:1 ottla:1 ottla:2
ottla:4] [--cores N] [--seconds S] [--turns N]`.

A side is a kind of broker and their number. All sides have the same N cores (by default all), in turns. The brokers of Ottla are bound to
one core each, core after core; those of Apache Kafka may use all N. Four generators load them, each with four connections and two requests
in flight at its share of 16 partitions, which have one leader. They run on the other cores of the machine, or beside the brokers if there
are none. Prints a table in the format of docs/scale.md: the medians of the turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.brokers import clusters, process
from benchmarks.loadgen.runner import Load
from benchmarks.loads import frames, workloads
from benchmarks.loads.admin import Topic
from benchmarks.parts.two_brokers import Pair

_GENERATORS: Final = 4
_CONNECTIONS: Final = 4
_FETCH_BYTES: Final = 64 * 1024
_MAX_BYTES: Final = 2 * 2**30
"""Bytes that one generator may write in a turn."""
_CONFIG: Final = {
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "log.segment.delete.delay.ms": "500",
    "zookeeper.session.timeout.ms": "18000",
}


class Side(NamedTuple):
    """The kind of the brokers, and their number."""

    kind: str
    brokers: int

    @staticmethod
    def parse(text: str) -> Side:
        """The side of KIND:NUMBER. Raises ValueError."""
        kind, _, brokers = text.partition(":")
        if kind not in clusters.KINDS or int(brokers) not in range(1, _GENERATORS + 1):
            raise ValueError(text)
        return Side(kind, int(brokers))

    @property
    def label(self) -> str:
        """The first cell of its row."""
        return f"{clusters.KINDS[self.kind].label}, {self.brokers} broker{'s' * (self.brokers != 1)}"


class Figures(NamedTuple):
    """The results of one turn."""

    produce_rate: float
    produce_cpu_us: float
    fetch_rate: float
    fetch_cpu_us: float
    memory_mb: float


def bind(side: Side, cluster: clusters.Cluster, cores: Sequence[int]) -> None:
    """Give the brokers their cores."""
    for number in range(side.brokers):
        own = set(cores) if side.kind.startswith("apache") else {cores[number % len(cores)]}
        process.bind(cluster.pid(number), own)


def measure(side: Side, directory: Path, cores: Sequence[int], seconds: float, most_warm_up_s: float) -> Figures:
    """One turn: start, warm up, produce, fetch."""
    cluster = clusters.KINDS[side.kind](directory, _CONFIG, side.brokers)
    cluster.start()
    try:
        bind(side, cluster, cores)
        pair = Pair(cluster, side.brokers, _GENERATORS)
        topic = pair.create_topic("shared")
        warm_up_s = min(cluster.warm_up_s, most_warm_up_s)
        produce_rate, produce_cpu_s = pair.run(partial(_produce, topic, warm_up_s, seconds), topic)
        fetch_rate, fetch_cpu_s = pair.run(partial(_fetch, topic, warm_up_s, seconds), topic)
        return Figures(produce_rate, produce_cpu_s * 1e6, fetch_rate, fetch_cpu_s * 1e6, pair.resident_bytes() / 1e6)
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _produce(topic: Topic, warm_up_s: float, seconds: float, share: Sequence[int]) -> Load:
    batch = workloads.batch_of_16_kib("none")(int(time.time() * 1000))
    asked = [frames.produce(topic.name, partition, batch) for partition in share]
    places = frames.produce_error_offsets(topic.name)
    return Load(asked, _CONNECTIONS, workloads.IN_FLIGHT, warm_up_s, seconds, max_bytes=_MAX_BYTES, error_offsets=places)


def _fetch(topic: Topic, warm_up_s: float, seconds: float, share: Sequence[int]) -> Load:
    asked = [frames.fetch(topic.topic_id, partition, 0, _FETCH_BYTES) for partition in share]
    places = frames.fetch_error_offsets()
    return Load(asked, _CONNECTIONS, workloads.IN_FLIGHT, warm_up_s, seconds, error_offsets=places, discard_bodies=True)


def row(side: Side, turns: Sequence[Figures]) -> str:
    """The medians of the turns of a side."""
    found = Figures(*(statistics.median(column) for column in zip(*turns, strict=True)))
    rates = f"{found.produce_rate:,.0f} | {found.produce_cpu_us:.1f} | {found.fetch_rate:,.0f} | {found.fetch_cpu_us:.1f}"
    return f"| {side.label} | {rates} | {found.memory_mb:,.0f} |"


def main() -> None:
    """The whole comparison."""
    available = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="One host with 1, 2 and 4 brokers, beside Apache Kafka on the same cores.")
    parser.add_argument("--sides", nargs="+", type=Side.parse, default=[Side("apache", 1), *(Side("ottla", each) for each in (1, 2, 4))])
    parser.add_argument("--cores", type=int, choices=range(1, len(available) + 1), default=len(available), metavar="N")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load")
    parser.add_argument("--warm-up", type=float, default=60.0, help="of each load, at most, seconds")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="for the data of the brokers")
    options = parser.parse_args()
    cores = available[: options.cores]
    os.sched_setaffinity(0, set(available[options.cores :]) or set(available))  # the generators inherit it
    turns: dict[Side, list[Figures]] = {side: [] for side in options.sides}
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        for turn in range(options.turns):
            for side in options.sides if turn % 2 == 0 else reversed(options.sides):
                turns[side].append(measure(side, Path(folder, f"{side.kind}-{side.brokers}"), cores, options.seconds, options.warm_up))
    print(f"{len(cores)} of {len(available)} cores for the brokers, {options.turns} turns of {options.seconds:g} s\n")
    print(
        "| brokers | Produce of 16 KiB, req/s | µs of the processors | Fetch of 64 KiB, req/s | µs of the processors | memory of all MB |"
    )
    print("|---|---|---|---|---|---|")
    for side, figures in turns.items():
        print(row(side, figures), flush=True)


if __name__ == "__main__":
    main()
