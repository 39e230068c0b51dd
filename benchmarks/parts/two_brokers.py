"""Measures a whole machine of two cores: two Ottla brokers, one per core, beside one broker of Apache Kafka on both.

The clients share the cores with the brokers, as nothing else is left; each side has the same clients.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.brokers import clusters, process
from benchmarks.loadgen import librdkafka
from benchmarks.loadgen.runner import Load, Measured, run_load
from benchmarks.loads import frames, workloads
from benchmarks.loads.admin import Admin, Topic
from benchmarks.parts.part import Part
from benchmarks.report.lines import Line, number
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import FAILURES, Plan, Turn

_BROKERS = {"apache": 1, "ottla": 2}
_LABELS = {"apache": f"{clusters.KINDS['apache'].label}, one broker", "ottla": "Ottla, two brokers"}
_GENERATORS = 2
_PARTITIONS = 16
_CONNECTIONS = 4
_FETCH_BYTES = 64 * 1024
_SOONER = "fetch.queue.backoff.ms=10"
"""A short pause of a partition of which librdkafka holds enough messages. With the default of a second it has long run out by then."""
_CONFIG = {
    "log.segment.delete.delay.ms": "500",
    "offsets.topic.replication.factor": "1",
    "zookeeper.session.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
}


class Pair:
    """A started cluster of one or more brokers, and the generators that load it."""

    def __init__(self, cluster: clusters.Cluster, brokers: int, generators: int = _GENERATORS) -> None:
        self._cluster = cluster
        self._generators = generators
        self._ids = range(brokers)

    def create_topic(self, name: str) -> Topic:
        """Partitions for all brokers."""
        with Admin("127.0.0.1", self._cluster.port(0)) as any_broker:
            controller = any_broker.controller_id()
        with Admin("127.0.0.1", self._cluster.port(max(controller, 0))) as admin:
            topic = admin.create_topic(name, _PARTITIONS)
        for broker_id in self._ids:
            with Admin("127.0.0.1", self._cluster.port(broker_id)) as admin:
                admin.wait_for_leaders([name], _PARTITIONS)
        return topic

    def cpu_s(self) -> float:
        """Of all brokers."""
        return sum(process.cpu_s(self._cluster.pid(broker_id)) for broker_id in self._ids)

    def resident_bytes(self) -> int:
        """Of all brokers."""
        return sum(process.resident_bytes(self._cluster.pid(broker_id)) for broker_id in self._ids)

    def bind(self) -> None:
        """A core for each, where there are as many."""
        cores = sorted(os.sched_getaffinity(0))
        if len(self._ids) > 1 and len(cores) >= len(self._ids):
            for broker_id in self._ids:
                process.bind(self._cluster.pid(broker_id), {cores[broker_id]})

    def run(self, load: Callable[[Sequence[int]], Load], topic: Topic) -> tuple[float, float]:
        """All generators, each at its share of the partitions: (requests per second, processor seconds of the brokers per request).

        A share has one leader, so there are at least as many generators as brokers.
        """
        with Admin("127.0.0.1", self._cluster.port(0)) as admin:
            leaders = admin.leaders(topic.name)
        by_leader = sorted(leaders, key=lambda partition: (leaders[partition], partition))
        size = len(by_leader) // self._generators
        shares = [by_leader[at : at + size] for at in range(0, len(by_leader), size)]

        def generate(share: Sequence[int]) -> Measured:
            (leader,) = {leaders[partition] for partition in share}
            return run_load("127.0.0.1", self._cluster.port(leader), load(share), probe=self.cpu_s)

        with ThreadPoolExecutor(self._generators) as generators:
            found = list(generators.map(generate, shares))
        # The window of each generator has the processor time of all brokers, and the windows lie side by side.
        used_s = sum(each.broker_cpu_s for each in found) / len(found)
        return sum(each.per_second for each in found), used_s / max(sum(each.answered for each in found), 1)


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Produce and fetch with the generators, then librdkafka."""
    brokers = _BROKERS[kind]
    cluster = clusters.KINDS[kind](directory, {**_CONFIG, "default.replication.factor": "1"}, brokers)
    cluster.start()
    try:
        pair = Pair(cluster, brokers)
        pair.bind()
        time.sleep(plan.size.settle_s)
        turn.numbers["idle_bytes"] = pair.resident_bytes()
        for key, work in (("generators", _with_generators), ("librdkafka", _with_librdkafka)):
            try:
                work(cluster, pair, turn, plan)
            except FAILURES as failure:
                turn.failures[key] = str(failure)
                plan.say(f"{turn.label}: {key} FAILED: {failure}")
        turn.numbers["loaded_bytes"] = pair.resident_bytes()
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _with_generators(cluster: clusters.Cluster, pair: Pair, turn: Turn, plan: Plan) -> None:
    pace = plan.size.pace
    topic = pair.create_topic("shared")
    batch = workloads.batch_of_16_kib("none")(int(time.time() * 1000))

    def produce(warm_up_s: float, duration_s: float, share: Sequence[int]) -> Load:
        asked = [frames.produce(topic.name, partition, batch) for partition in share]
        places = frames.produce_error_offsets(topic.name)
        max_bytes = pace.max_bytes // _GENERATORS // plan.size.windows
        return Load(asked, _CONNECTIONS, workloads.IN_FLIGHT, warm_up_s, duration_s, max_bytes=max_bytes, error_offsets=places)

    def fetch(warm_up_s: float, duration_s: float, share: Sequence[int]) -> Load:
        asked = [frames.fetch(topic.topic_id, partition, 0, _FETCH_BYTES) for partition in share]
        places = frames.fetch_error_offsets()
        return Load(asked, _CONNECTIONS, workloads.IN_FLIGHT, warm_up_s, duration_s, error_offsets=places, discard_bodies=True)

    warm_up_s, length_s = min(cluster.warm_up_s, pace.warm_up_limit_s), pace.duration_s / plan.size.windows
    for key, load in (("produce", produce), ("fetch", fetch)):
        pair.run(partial(load, 0, max(warm_up_s, pace.warm_up_slice_s)), topic)
        windows = [pair.run(partial(load, pace.warm_up_s / plan.size.windows, length_s), topic) for _ in plan.windows()]
        per_second, cpu_s = (statistics.median(figures) for figures in zip(*windows, strict=True))
        turn.numbers[f"{key}_rate"], turn.numbers[f"{key}_cpu_us"] = per_second, cpu_s * 1e6
        plan.say(f"{turn.label}: {key}: {per_second:,.0f} req/s")


def _with_librdkafka(cluster: clusters.Cluster, pair: Pair, turn: Turn, plan: Plan) -> None:
    topic = pair.create_topic("librdkafka")
    warm_up_s = min(cluster.warm_up_s, max(plan.size.pace.warm_up_limit_s, 0.5))
    produced = librdkafka.produce(cluster.bootstrap, topic.name, warm_up_s, plan.size.pace.duration_s, pair.cpu_s)
    consume = partial(librdkafka.consume, cluster.bootstrap, topic.name, produced.in_all, topic.partitions, pair.cpu_s, group=True)
    plan.pass_on()
    consumed = consume()
    plan.pass_on()
    sooner = consume(settings=[_SOONER])
    for key, messages in (("produce", produced), ("consume", consumed), ("consume_sooner", sooner)):
        turn.numbers[f"librdkafka_{key}"] = messages.per_second
        plan.say(f"{turn.label}: librdkafka {key.replace('_', ' ')}: {messages.per_second:,.0f} msg/s")


def lines(_: Size) -> Sequence[Line]:
    return (
        Line("produce", "produce, 16 KiB batch", "req/s", number("produce_rate")),
        Line("produce-cpu", "produce, 16 KiB batch: processor time", "µs/req", number("produce_cpu_us"), 1, True),
        Line("fetch", "fetch, 64 KiB", "req/s", number("fetch_rate")),
        Line("fetch-cpu", "fetch, 64 KiB: processor time", "µs/req", number("fetch_cpu_us"), 1, True),
        Line("librdkafka-produce", "librdkafka produce, 100 B, linger 5 ms", "msg/s", number("librdkafka_produce")),
        Line("librdkafka-consume", "librdkafka consume", "msg/s", number("librdkafka_consume")),
        Line("librdkafka-consume-sooner", f"librdkafka consume, {_SOONER}", "msg/s", number("librdkafka_consume_sooner")),
        Line("memory-idle", "resident memory, idle", "MB", number("idle_bytes", 1e6), 0, True),
        Line("memory-loaded", "resident memory, after load", "MB", number("loaded_bytes", 1e6), 0, True),
    )


PART = Part(
    key="two-brokers",
    title="Two brokers on two cores",
    about="Two Ottla brokers that share a metadata file, each bound to a core, beside one broker of Apache Kafka on both. Two generators "
    "(four connections each, two requests in flight) share the cores with them, and so does librdkafka. 16 partitions, one replica.",
    take_turn=take_turn,
    lines=lines,
    kinds=_LABELS,
)
