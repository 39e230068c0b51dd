"""Measures three brokers beside three of Apache Kafka, on the same cores: `python -m benchmarks.comparisons.replication [--only ...]`.

    throughput   produce with acks=all to partitions with three replicas: batches of 16 KiB, and single records, per second; single
                 records once more beside IDLE_PARTITIONS without writes
    stall        the longest time without an acknowledgement that a producer of small records sees: its leader is killed (session timeout
                 4 s), and its leader is stopped cleanly
    catch-up     a follower comes back after it missed CATCH_UP_BYTES: until it is in sync again
    failover     the controller, which leads a third of PARTITIONS partitions, is killed: until all of them have leaders again

Kinds take turns; the table shows the medians of the turns.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.brokers import process
from benchmarks.brokers.clusters import BROKERS, KINDS, Cluster
from benchmarks.brokers.present_memory import free_memory_present
from benchmarks.loadgen.runner import Load, Measured, run_load, side_by_side
from benchmarks.loads import frames
from benchmarks.loads.batches import batch_of_size
from benchmarks.loads.workloads import batch_of_16_kib

PARTITIONS_PER_BROKER = 4
IN_FLIGHT = 2
WINDOW_S = 6.0
WINDOW_BYTES = 384 << 20
"""Limit of the bytes that the generators of a window send; a longer window would measure the disk. Three replicas, and half as much again
in the warm-up, stay below the dirty bytes at which the kernel of a 16 GB machine begins to write back."""
WINDOWS = 3
IDLE_PARTITIONS = 1000
FAILOVER_PARTITIONS = 2000
CATCH_UP_BYTES = 400 << 20
PATIENCE_S = 120.0
SEND_EVERY_S = 0.005
STEADY_RECORDS = 400


class Line(NamedTuple):
    """One figure. `target`: the wanted ratio to the reference, or None."""

    key: str
    title: str
    unit: str
    more_is_better: bool
    target: float | None


LINES = (
    Line("16k", "produce 16 KiB, acks=all, three replicas", "req/s", True, 2.0),
    Line("1", "produce 1 record, acks=all, three replicas", "req/s", True, 2.0),
    Line("1-idle", f"the same, {IDLE_PARTITIONS:,} idle partitions", "req/s", True, None),
    Line("16k-cpu", "processor time per 16 KiB batch, all brokers", "µs", False, None),
    Line("kill", "longest stall, leader killed", "s", False, 1.0),
    Line("stop", "longest stall, leader stopped", "s", False, 1.0),
    Line("catch-up", "a follower catches up", "MB/s", True, None),
    Line("failover", f"controller killed, {FAILOVER_PARTITIONS:,} partitions", "s", False, 1.0),
)


def create(cluster: Cluster, topic: str, partitions: int) -> AdminClient:
    """Create a topic whose partition i is led by broker i % 3. Returns when every broker knows the leaders."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assignment = [[(index + k) % BROKERS for k in range(BROKERS)] for index in range(partitions)]
    admin.create_topics([NewTopic(topic, partitions, replica_assignment=assignment)], request_timeout=60)[topic].result(90)
    for broker_id in range(BROKERS):
        wait(partial(knows, cluster.port(broker_id), topic, partitions), "leaders")
    return admin


def knows(port: int, topic: str, partitions: int) -> bool:
    """Whether the broker at this port knows all leaders of a topic. A new client asks only its bootstrap broker."""
    asked = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    return all(leader_of(asked, topic, index) >= 0 for index in range(partitions))


def wait(condition: Callable[[], bool], what: str) -> float:
    """Poll until the condition holds. Returns the seconds until then."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(0.01)
    return time.monotonic() - began


def leader_of(admin: AdminClient, topic: str, partition: int) -> int:
    """The id of the leader; -1 without one."""
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(partition)
    return -1 if found is None else int(found.leader)


def in_sync(admin: AdminClient, topic: str) -> bool:
    """Whether all replicas of all partitions are in sync."""
    return all(len(found.isrs) == BROKERS for found in admin.list_topics(topic, timeout=10).topics[topic].partitions.values())


# Throughput


def on_every_leader(cluster: Cluster, wanted: Callable[[int], Load]) -> Measured:
    """Load every leader from its own generator, with the load for its broker id; the processor time is that of all brokers."""

    def cpu_s() -> float:
        return sum(process.cpu_s(cluster.pid(broker_id)) for broker_id in range(BROKERS))

    def load(broker_id: int) -> Measured:
        return run_load("127.0.0.1", cluster.port(broker_id), wanted(broker_id), probe=cpu_s)

    with ThreadPoolExecutor(BROKERS) as generators:
        return side_by_side(list(generators.map(load, range(BROKERS))))


def throughput(cluster: Cluster, topic: str, batch: bytes, seconds: float, max_bytes: int = 0) -> tuple[float, float]:
    """(requests per second, processor seconds of all brokers per request)."""
    error_offsets = frames.produce_error_offsets(topic)

    def wanted(broker_id: int) -> Load:
        own = [frames.produce(topic, broker_id + BROKERS * i, batch) for i in range(PARTITIONS_PER_BROKER)]
        return Load(own, PARTITIONS_PER_BROKER, IN_FLIGHT, 1.0, seconds, max_bytes=max_bytes // BROKERS, error_offsets=error_offsets)

    found = on_every_leader(cluster, wanted)
    return found.per_second, found.broker_cpu_s / found.answered


def steady_throughput(cluster: Cluster, topic: str, batch: bytes) -> tuple[float, float]:
    """Like `throughput`, of a warm cluster and without the disk: medians of WINDOWS windows, which all begin with no dirty pages."""
    windows = []
    for _ in range(WINDOWS):
        os.sync()
        windows.append(throughput(cluster, topic, batch, WINDOW_S, WINDOW_BYTES))
    return statistics.median(per_second for per_second, _ in windows), statistics.median(cpu_s for _, cpu_s in windows)


def measure_throughput(cluster: Cluster, found: dict[str, list[float]]) -> None:
    """Both sizes of batches, and many partitions."""
    create(cluster, "throughput", BROKERS * PARTITIONS_PER_BROKER)
    now_ms = int(time.time() * 1000)
    large, small = batch_of_16_kib("none")(now_ms), batch_of_size(170, 1, now_ms)
    throughput(cluster, "throughput", large, cluster.warm_up_s)
    per_second, cpu_s = steady_throughput(cluster, "throughput", large)
    found.setdefault("16k", []).append(per_second)
    found.setdefault("16k-cpu", []).append(cpu_s * 1e6)
    throughput(cluster, "throughput", small, cluster.warm_up_s / 2)
    found.setdefault("1", []).append(steady_throughput(cluster, "throughput", small)[0])
    idle = create(cluster, "idle", IDLE_PARTITIONS)
    wait(lambda: in_sync(idle, "idle"), "all replicas")
    throughput(cluster, "throughput", small, cluster.warm_up_s / 8)
    found.setdefault("1-idle", []).append(steady_throughput(cluster, "throughput", small)[0])


# Stalls


class SteadyProducer:
    """Sends a record every 5 ms and notes the time of each acknowledgement."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0, "acks": "all"})
        self._topic = topic
        self._acknowledged: list[float] = []
        self._failed = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(SEND_EVERY_S):
            self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._on_delivery)
            self._producer.poll(0)
        self._producer.flush(60)

    def _on_delivery(self, error: object, _: object) -> None:
        if error:
            self._failed += 1
        else:
            self._acknowledged.append(time.monotonic())

    @property
    def count(self) -> int:
        """Acknowledged so far."""
        return len(self._acknowledged)

    def longest_stall(self) -> float:
        """End, and return the longest stall in seconds. Raises RuntimeError when a record was lost."""
        self._stopping.set()
        self._thread.join()
        if self._failed:
            raise RuntimeError(f"{self._failed} records were not delivered")
        times = self._acknowledged
        return max(later - earlier for earlier, later in pairwise(times))


def measure_stalls(cluster: Cluster, found: dict[str, list[float]]) -> None:
    """Measure the stalls when the leader of partition 0 is killed, and when it is stopped."""
    _measure_stall(cluster, "stop", cluster.stop_broker, found)
    _measure_stall(cluster, "kill", cluster.kill_broker, found)


def _measure_stall(cluster: Cluster, key: str, go: Callable[[int], None], found: dict[str, list[float]]) -> None:
    topic = f"stall-{key}"
    admin = create(cluster, topic, 1)
    producer = SteadyProducer(cluster, topic)
    wait(lambda: producer.count > STEADY_RECORDS, "acknowledgements")
    leader = leader_of(admin, topic, 0)
    go(leader)
    enough = producer.count + STEADY_RECORDS
    wait(lambda: producer.count > enough, "acknowledgements after it")
    found.setdefault(key, []).append(producer.longest_stall())
    cluster.start_broker(leader)
    wait(lambda: in_sync(admin, topic), "all replicas")


# A follower comes back


def measure_catch_up(cluster: Cluster, found: dict[str, list[float]]) -> None:
    """Measure a follower from its start until it is in sync."""
    topic = "catch-up"
    admin = create(cluster, topic, 1)
    follower = (leader_of(admin, topic, 0) + 1) % BROKERS
    cluster.stop_broker(follower)
    batch = batch_of_size(256 << 10, 250, int(time.time() * 1000))
    load = Load([frames.produce(topic, 0, batch)], 1, 2, 0.0, PATIENCE_S, total=CATCH_UP_BYTES // len(batch))
    run_load("127.0.0.1", cluster.port(leader_of(admin, topic, 0)), load)
    cluster.start_broker(follower)
    found.setdefault("catch-up", []).append(CATCH_UP_BYTES / 1e6 / max(wait(lambda: in_sync(admin, topic), "the follower"), 1e-3))


# Another controller


def measure_failover(cluster: Cluster, found: dict[str, list[float]]) -> None:
    """Measure until no partition is led by the broker that died."""
    topic = "failover"
    admin = create(cluster, topic, FAILOVER_PARTITIONS)
    wait(lambda: in_sync(admin, topic), "all replicas")
    controller = int(admin.list_topics(timeout=10).controller_id)
    other = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.port((controller + 1) % BROKERS)}"})
    other.list_topics(timeout=10)
    cluster.kill_broker(controller)

    def all_led() -> bool:
        partitions = other.list_topics(topic, timeout=30).topics[topic].partitions.values()
        return all(found.leader not in (controller, -1) for found in partitions)

    found.setdefault("failover", []).append(wait(all_led, "leaders"))
    cluster.start_broker(controller)


MEASURES: dict[str, Callable[[Cluster, dict[str, list[float]]], None]] = {
    "throughput": measure_throughput,
    "stall": measure_stalls,
    "catch-up": measure_catch_up,
    "failover": measure_failover,
}


def table(results: dict[str, dict[str, list[float]]]) -> Table:
    """A line per figure."""
    reference, *others = results
    shown = Table(title="Three brokers, side by side", title_justify="left")
    for heading in ("work", "unit", *results, *(f"{label}: times better" for label in others), "target"):
        shown.add_column(heading, justify="left" if heading in ("work", "unit") else "right")
    for line in LINES:
        medians = {label: statistics.median(found[line.key]) for label, found in results.items() if found.get(line.key)}
        if not medians:
            continue
        ratios = []
        for label in others:
            if label in medians and reference in medians:
                ratio = medians[label] / medians[reference] if line.more_is_better else medians[reference] / medians[label]
                ratios.append(f"{ratio:.2f} ×")
            else:
                ratios.append("-")
        values = [f"{medians[label]:,.{0 if medians[label] > 100 else 2}f}" if label in medians else "-" for label in results]
        shown.add_row(line.title, line.unit, *values, *ratios, "" if line.target is None else f"≥ {line.target:g} ×")
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit code: 1 when a measure failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparisons.replication", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(MEASURES), help="comma-separated")
    parser.add_argument("--kinds", default=",".join(KINDS), help="the reference first, comma-separated")
    parser.add_argument("--repeats", type=int, default=1)
    asked = parser.parse_args(arguments)
    results: dict[str, dict[str, list[float]]] = {KINDS[kind].label: {} for kind in asked.kinds.split(",")}
    failures = []
    with free_memory_present(), tempfile.TemporaryDirectory(prefix="benchmark-replication-", ignore_cleanup_errors=True) as scratch:
        for turn in range(asked.repeats):
            for kind in asked.kinds.split(","):
                for name in asked.only.split(","):
                    directory = Path(scratch, f"{kind}-{name}-{turn}")
                    cluster = KINDS[kind](directory)
                    cluster.start()
                    try:
                        MEASURES[name](cluster, results[KINDS[kind].label])
                    except Exception as error:
                        failures.append(f"{KINDS[kind].label}: {name}: {type(error).__name__}: {error}")
                    finally:
                        cluster.stop()
                        shutil.rmtree(directory, ignore_errors=True)
    console = Console()
    console.print(table(results))
    for failure in failures:
        console.print(f"failed: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
