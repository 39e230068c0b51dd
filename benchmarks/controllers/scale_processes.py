"""Measures a cluster of many real brokers on one machine: `python -m benchmarks.controllers.scale_processes [--brokers 10] [--partitions
10000]`.

The brokers are processes of their own that share a metadata file. The program creates topics, kills the broker of the controller and then
another broker, and starts each of them again. It prints the time of each step, the processor seconds of all brokers, and their memory.

A step ends when the metadata of every living broker shows its result: a live leader, or all replicas in sync, for every partition. The
brokers share the cores of the machine, with this program, so a step takes longer than on machines of their own.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.brokers.process import cpu_s, resident_bytes
from ottla.client.cluster import Cluster as Client
from ottla.client.errors import ClientError
from ottla.client.topic_admin import NewTopic, all_topics, create_topics
from ottla.protocol.messages.metadata import MetadataResponsePartition
from tests.support.cluster import Cluster, a_cluster

PARTITIONS_PER_TOPIC: Final = 100
TOPICS_PER_REQUEST: Final = 10
REPLICATION_FACTOR: Final = 3
PATIENCE_S: Final = 900.0
POLL_S: Final = 0.1
TIMEOUT_S: Final = 120.0

Condition = Callable[[MetadataResponsePartition], bool]


class Run:
    """One cluster, and the steps that were measured."""

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        self._cluster = cluster
        self._partitions = partitions

    def _living(self) -> list[int]:
        return [broker.id for broker in self._cluster.brokers.values() if broker.is_running]

    def _cpu_s(self) -> dict[int, float]:
        """Processor seconds by process."""
        pids = [self._cluster.broker(each).pid for each in self._living()]
        return {pid: cpu_s(pid) for pid in pids}

    def step(self, name: str, work: Callable[[], None]) -> None:
        """Do the work and print a line of the table."""
        began, before_s = time.monotonic(), self._cpu_s()
        work()
        took_s = time.monotonic() - began
        used_s = sum(now_s - before_s.get(pid, 0.0) for pid, now_s in self._cpu_s().items())
        memory_mb = [resident_bytes(self._cluster.broker(each).pid) / 1e6 for each in self._living()]
        average_mb = sum(memory_mb) / len(memory_mb)
        print(f"| {name} | {took_s:.1f} | {used_s:.1f} | {average_mb:.0f} | {max(memory_mb):.0f} |", flush=True)

    def _found(self, broker_id: int) -> Iterator[MetadataResponsePartition]:
        with Client(self._cluster.broker(broker_id).bootstrap, timeout_seconds=TIMEOUT_S) as client:
            for topic in all_topics(client):
                yield from topic.partitions

    def _until_all(self, holds: Condition) -> None:
        """Wait until every living broker knows all partitions, and the condition holds for each of them."""
        deadline = time.monotonic() + PATIENCE_S
        for broker_id in self._living():
            while True:
                try:
                    held = [holds(partition) for partition in self._found(broker_id)]
                except ClientError:
                    held = []
                if len(held) == self._partitions and all(held):
                    break
                if time.monotonic() > deadline:
                    raise SystemExit(f"broker {broker_id}: {sum(held)} of {self._partitions} partitions after {PATIENCE_S:.0f} s")
                time.sleep(POLL_S)

    def create(self) -> None:
        """Create all topics."""
        names = [f"topic-{number}" for number in range(self._partitions // PARTITIONS_PER_TOPIC)]
        with Client(self._cluster.bootstrap, timeout_seconds=TIMEOUT_S) as client:
            for at in range(0, len(names), TOPICS_PER_REQUEST):
                wanted = [NewTopic(name, PARTITIONS_PER_TOPIC, REPLICATION_FACTOR) for name in names[at : at + TOPICS_PER_REQUEST]]
                refused = {name: error for name, error in create_topics(client, wanted).items() if error is not None}
                if refused:
                    raise SystemExit(f"topics were not created: {refused}")
        self.all_in_sync()

    def all_in_sync(self) -> None:
        """Wait until all replicas of all partitions are in sync."""
        self._until_all(lambda partition: len(partition.isr_nodes) == REPLICATION_FACTOR)

    def kill(self, broker_id: int) -> None:
        """Kill a broker, and wait until others lead its partitions."""
        self._cluster.broker(broker_id).kill()
        living = set(self._living())
        self._until_all(lambda partition: partition.leader_id in living)

    def restart(self, broker_id: int) -> None:
        """Start a broker, and wait until it is in sync again."""
        self._cluster.broker(broker_id).start()
        self.all_in_sync()


def measure(directory: Path, brokers: int, partitions: int) -> None:
    """The whole run."""
    print(f"{brokers} brokers, {partitions:,} partitions, {REPLICATION_FACTOR} replicas each\n")
    print("| step | s | processor s of the brokers | memory of a broker MB | of the largest MB |\n|---|---|---|---|---|")
    with a_cluster(directory, brokers, replica_lag_time_max_ms=30_000) as cluster:
        run = Run(cluster, partitions)
        run.step("nothing, after the start", lambda: time.sleep(1))
        run.step("all topics are created", run.create)
        controller = cluster.controller_id()
        run.step("death of the controller's broker", lambda: run.kill(controller))
        run.step("its start", lambda: run.restart(controller))
        victim = next(each for each in cluster.brokers if each not in (controller, cluster.controller_id()))
        run.step("death of another broker", lambda: run.kill(victim))
        run.step("its start", lambda: run.restart(victim))
        run.step("idle for 10 s", lambda: time.sleep(10))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as directory:
        measure(Path(directory), options.brokers, options.partitions)


if __name__ == "__main__":
    main()
