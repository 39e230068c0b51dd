"""Measures many connections: most of them idle, and all of them active in turn."""

import resource
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.brokers import process
from benchmarks.loadgen.runner import Load
from benchmarks.loads import frames, workloads
from benchmarks.loads.admin import BrokerRefusedError, Topic
from benchmarks.loads.batches import batch_of_values, values_like_text
from benchmarks.loads.frames import request_frame
from benchmarks.parts.part import BROKER_LABELS, Part, running
from benchmarks.report.lines import Line, latency_of, number, percent_name, rate_of
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Bench, Plan, Turn
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest

_PARTITIONS = 64
_RATE = 4000
_SPARE_FILES = 1000
_PATIENCE_S = 60.0
_AT_ONCE = 25


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Measure a few alone, a few beside many idle ones, and many in turn; memory at each step."""
    allow_open_files(plan.size.connections + _SPARE_FILES)
    with running(kind, turn, directory, plan) as bench:
        bench.on_topic("connected", _PARTITIONS, partial(_measure, bench))


def allow_open_files(count: int) -> None:
    """Raise the limit for this process and its children. Raises BrokerRefusedError when the system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BrokerRefusedError(f"this many connections need {count} open files, and the limit is {hard}; raise it with `ulimit -Hn`")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _measure(bench: Bench, topic: Topic) -> None:
    pace, turn, count = bench.plan.size.pace, bench.turn, bench.plan.size.connections
    batch = batch_of_values(values_like_text(1, 100), int(time.time() * 1000))
    asked = [frames.produce(topic.name, partition, batch) for partition in range(topic.partitions)]

    def load(connections: int, rate: float, in_flight: int = 1) -> Load:
        return Load(
            asked,
            connections,
            in_flight,
            pace.warm_up_s,
            pace.duration_s,
            rate,
            error_offsets=frames.produce_error_offsets(topic.name),
        )

    bench.warm_up(Load(asked, workloads.PRODUCE_CONNECTIONS, 1, 0, pace.warm_up_slice_s))
    bench.settle()
    before = bench.note_memory("before_bytes")
    bench.measure("few", "8 connections alone", load(workloads.PRODUCE_CONNECTIONS, _RATE))
    began = time.monotonic()
    with idle_connections(bench.broker.port, count):
        turn.numbers["connect_s"] = time.monotonic() - began
        bench.settle()
        turn.numbers["bytes_per_idle"] = max(bench.note_memory("idle_bytes") - before, 0) / count
        turn.numbers["idle_cpu_share"] = _cpu_share(bench, pace.duration_s)
        bench.measure("few-beside-idle", f"8 connections beside {count:,} idle ones", load(workloads.PRODUCE_CONNECTIONS, _RATE))
    bench.measure("in-turn", f"{count:,} connections in turn", load(count, _RATE))
    bench.measure("all-at-once", f"{count:,} connections, each with a request in flight", load(count, 0))
    bench.note_memory("after_bytes")


def _cpu_share(bench: Bench, seconds: float) -> float:
    """The share of a core that the broker uses without requests."""
    before, began = process.cpu_s(bench.broker.pid), time.monotonic()
    time.sleep(seconds)
    return (process.cpu_s(bench.broker.pid) - before) / (time.monotonic() - began)


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[None]:
    """Connections that have sent ApiVersions, as every client does, and are idle then."""
    asked = request_frame(ApiKey.API_VERSIONS, ApiVersionsRequest(client_software_name="loadgen", client_software_version="1"))
    opened: list[socket.socket] = []
    try:
        while len(opened) < count:
            # Fewer than the accept queue holds: the kernel drops further ones, which come again a second later.
            together = range(min(_AT_ONCE, count - len(opened)))
            fresh = [socket.create_connection(("127.0.0.1", port), _PATIENCE_S) for _ in together]
            opened += fresh
            for connection in fresh:
                connection.sendall(asked)
            for connection in fresh:
                if not connection.recv(1 << 16):
                    raise BrokerRefusedError(f"the broker closed one of {count} idle connections")
        yield
    finally:
        for connection in opened:
            connection.close()


def lines(size: Size) -> Sequence[Line]:
    many = f"{size.connections:,}"
    rate = f"at {_RATE:,} req/s"

    def latencies(key: str, title: str) -> list[Line]:
        return [Line(f"{key}-p{at:g}", f"{title}: {percent_name(at)}", "ms", latency_of(key, at), 2, True) for at in (50, 99, 99.9)]

    return (
        *latencies("few", f"8 connections {rate}, alone"),
        Line("connect", f"open {many} connections, versions asked", "s", number("connect_s"), 2, True),
        Line("memory-idle", "more memory per idle connection", "KB", number("bytes_per_idle", 1e3), 1, True),
        Line("cpu-idle", f"processor share, {many} idle", "%", number("idle_cpu_share", 0.01), 1, True),
        *latencies("few-beside-idle", f"8 connections {rate}, beside {many} idle ones"),
        *latencies("in-turn", f"{many} connections in turn, {rate}"),
        Line("all-at-once", f"{many} connections, one request in flight each", "req/s", rate_of("all-at-once")),
        Line("memory-after", "resident memory after that", "MB", number("after_bytes", 1e6), 0, True),
    )


def details(size: Size) -> Sequence[tuple[str, str]]:
    return (
        ("few", "8 connections alone"),
        ("few-beside-idle", f"8 beside {size.connections:,} idle ones"),
        ("in-turn", f"{size.connections:,} in turn"),
        ("all-at-once", f"{size.connections:,} at once"),
    )


PART = Part(
    key="connections",
    title="Many connections",
    about="One broker on one core; every request is a batch of one record of 100 bytes, to one of 64 partitions.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    details=details,
)
