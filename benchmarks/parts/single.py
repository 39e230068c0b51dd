"""Measures one broker under one load at a time: the lines that have targets.

A turn has two halves. Bound to one core, with the generator on another: all loads of workloads.py, memory before and after. On all cores:
start time, and librdkafka as producer and consumer.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.brokers import process
from benchmarks.loadgen import librdkafka
from benchmarks.loads import workloads
from benchmarks.loads.admin import Admin, Topic
from benchmarks.loads.workloads import LOADS, STEADY_RATE
from benchmarks.parts.part import BROKER_LABELS, Part, running
from benchmarks.report.lines import Line, cpu_per_gb_of, latency_of, number, rate_of
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Bench, Plan, Turn
from ottla.protocol.api_keys import ApiKey

LIBRDKAFKA = "librdkafka"
MESSAGE_BYTES = 100  # as loadgen/rdkafka_load.c sends them
_GROUP_APIS = (ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT)
_FETCH_PARTITIONS = 4
_LIBRDKAFKA_PARTITIONS = 4
_READINGS = 3
"""Readings by librdkafka, each as a new group. librdkafka pauses a partition for a second now and then, so readings differ."""

_RATE_TARGETS = {
    "produce-1": 1.5,
    "produce-16k": 3,
    "produce-16k-lz4": 3,
    "produce-16k-snappy": 2,
    "produce-16k-zstd": 2,
    "produce-16k-gzip": 1.5,
    "produce-1m": 2.5,
    "fetch-64k": 3,
    "fetch-1m": 1,
}
_COSTS = {
    "produce-16k": "16 KiB batches produced",
    "produce-16k-lz4": "the same as lz4, compressed bytes",
    "produce-1m": "1 MB batches produced",
    "fetch-64k": "fetched by 64 KiB",
    "fetch-1m": "fetched by 1 MiB",
}

LINES: Sequence[Line] = (
    *(
        Line(load.key, load.title, "req/s", rate_of(load.key), ratio_at_least=_RATE_TARGETS[load.key])
        for load in LOADS
        if load.key in _RATE_TARGETS
    ),
    Line("steady-p50", f"16 KiB at {STEADY_RATE:,} req/s: p50", "ms", latency_of("steady", 50), 2, True),
    Line("steady-p99", f"16 KiB at {STEADY_RATE:,} req/s: p99", "ms", latency_of("steady", 99), 2, True, at_most=1),
    Line("steady-p99.9", f"16 KiB at {STEADY_RATE:,} req/s: p99.9", "ms", latency_of("steady", 99.9), 2, True, at_most=5),
    Line("librdkafka-produce", "librdkafka produce, 100 B, linger 5 ms", "msg/s", number("librdkafka_produce"), ratio_at_least=1),
    Line("librdkafka-consume", "librdkafka consume", "msg/s", number("librdkafka_consume"), ratio_at_least=1),
    Line("start", "start to the first answer", "s", number("start_s"), 2, True, at_most=0.3),
    Line("memory-idle", "resident memory, idle", "MB", number("idle_bytes", 1e6), 0, True, at_most=60),
    Line("memory-loaded", "resident memory, after load", "MB", number("loaded_bytes", 1e6), 0, True, at_most=150),
    *(Line(f"cost-{key}", f"cost: {title}", "CPU s/GB", cpu_per_gb_of(key), 2, True) for key, title in _COSTS.items()),
    Line(
        "cost-librdkafka-produce", "cost: librdkafka produce, message bytes", "CPU s/GB", number("librdkafka_produce_cpu_s_per_gb"), 2, True
    ),
    Line(
        "cost-librdkafka-consume", "cost: librdkafka consume, message bytes", "CPU s/GB", number("librdkafka_consume_cpu_s_per_gb"), 2, True
    ),
)


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Both halves, one after the other."""
    with running(kind, turn, directory, plan) as bench:
        turn.numbers["start_s_one_core"] = bench.broker.start_s
        bench.settle()
        bench.note_memory("idle_bytes")
        _run_loads(bench)
        bench.note_memory("loaded_bytes")
        turn.numbers["peak_bytes"] = process.peak_resident_bytes(bench.broker.pid)
    with running(kind, turn, directory, plan, is_bound=False) as bench:
        turn.numbers["start_s"] = bench.broker.start_s
        bench.say(f"answers ApiVersions {bench.broker.start_s:.2f} s after its start")
        if plan.includes(LIBRDKAFKA):
            bench.attempt(LIBRDKAFKA, partial(_drive_librdkafka, bench))


def _run_loads(bench: Bench) -> None:
    plan = bench.plan
    pace = plan.size.pace
    if not any(plan.includes(load.key) for load in LOADS):
        return
    bench.on_topic("warm-up", workloads.PRODUCE_CONNECTIONS, lambda topic: bench.warm_up(workloads.warm_up(topic, pace.warm_up_slice_s)))
    for produce in workloads.PRODUCE:
        if plan.includes(produce.key):
            bench.on_topic(produce.key, workloads.PRODUCE_CONNECTIONS, partial(_produce, bench, produce))
    if any(plan.includes(fetch.key) for fetch in workloads.FETCH):
        bench.on_topic("fetched", _FETCH_PARTITIONS, partial(_fetch_all, bench))


def _produce(bench: Bench, produce: workloads.Produce, topic: Topic) -> None:
    bench.measure(produce.key, produce.title, produce.load(topic, bench.plan.size.pace))


def _fetch_all(bench: Bench, topic: Topic) -> None:
    pace = bench.plan.size.pace
    prepare_fetches(bench, topic)
    for fetch in workloads.FETCH:
        if bench.plan.includes(fetch.key):
            bench.measure(fetch.key, fetch.title, fetch.load(topic, pace))


def prepare_fetches(bench: Bench, topic: Topic) -> None:
    """Fill the topic, and warm up."""
    pace = bench.plan.size.pace
    for partition in range(topic.partitions):
        bench.load(workloads.prefill(topic, partition, pace))
    bench.warm_up(workloads.FETCH[0].load(topic, replace(pace, warm_up_s=0, duration_s=pace.warm_up_slice_s)))


def _drive_librdkafka(bench: Bench) -> None:
    broker, turn, duration_s = bench.broker, bench.turn, bench.plan.size.pace.duration_s
    bootstrap, probe = f"127.0.0.1:{broker.port}", partial(process.cpu_s, broker.pid)
    with Admin("127.0.0.1", broker.port) as admin:
        topic = admin.create_topic(LIBRDKAFKA, _LIBRDKAFKA_PARTITIONS)
        is_group = all(api in admin.api_versions() for api in _GROUP_APIS)
    if not is_group:
        turn.remarks.append("does not list the group requests; librdkafka consumed by assignment")
    produced = librdkafka.produce(bootstrap, topic.name, broker.librdkafka_warm_up_s, duration_s, probe)
    readings = []
    for _ in range(_READINGS):
        bench.plan.pass_on()
        readings.append(librdkafka.consume(bootstrap, topic.name, produced.in_all, topic.partitions, probe, group=is_group))
    consumed = sorted(readings, key=lambda reading: reading.per_second)[_READINGS // 2]
    for key, messages in (("produce", produced), ("consume", consumed)):
        turn.numbers[f"{LIBRDKAFKA}_{key}"] = messages.per_second
        turn.numbers[f"{LIBRDKAFKA}_{key}_cpu_s_per_gb"] = messages.broker_cpu_s / max(messages.count, 1) / MESSAGE_BYTES * 1e9
        bench.say(f"librdkafka {key}: {messages.per_second:,.0f} msg/s")


def lines(_: Size) -> Sequence[Line]:
    return LINES


PART = Part(
    key="single",
    title="One broker, one load at a time",
    about="The broker is bound to one core, the generator to another; librdkafka and the start time on all cores. Cost is the broker's "
    "processor time, user and system of all its threads, per 10⁹ bytes that carry the records.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    details=lambda _: [(load.key, load.title) for load in LOADS],
    is_repeated=True,
    choices=(*(load.key for load in LOADS), LIBRDKAFKA),
)
