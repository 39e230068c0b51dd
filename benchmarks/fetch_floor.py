"""What a fetch costs above the least that the kernel asks for it: `python -m benchmarks.fetch_floor`.

Brokers and a C program (loadgen/fetch_floor.c) that does nothing but the system calls of a fetch serve the same file to the same generator,
in turns, bound to the same core. The generator is that of `make bench`: 4 connections with 2 requests in flight, random offsets. Prints
processor µs per request (user and system; the median of the turns), also as multiples of the floor's: what no broker, in whatever language,
comes below with these system calls. On loopback the floor contains the receiving half of TCP, which runs on the sender's core. Ottla and
the floor send whole batches, Apache Kafka a part of the next one, too.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import process
from benchmarks.admin import Admin, Topic
from benchmarks.brokers import KINDS
from benchmarks.loadgen.compiler import compiled
from benchmarks.loadgen.runner import Load, Measured, run_load
from benchmarks.parts.part import running
from benchmarks.parts.single import prepare_fetches
from benchmarks.sizes import NORMAL
from benchmarks.turns import Cores, Plan, Turn
from benchmarks.workloads import FETCH, PREFILL_BATCH_BYTES, Fetch, batch_of_16_kib
from tests.support.apache_kafka import pinned_to

TURNS = 3
SECONDS = 1.5
PREFILL_BYTES = 256 << 20
FLOOR = "floor"
_PARTITIONS = 4
_HEAD_BYTES, _TAIL_BYTES = 91, 3  # what an answer has around the records
_SEND_BUFFER_BYTES = 102_400  # socket.send.buffer.bytes


class Server(NamedTuple):
    """What answers fetches: its process, and where it listens."""

    pid: int
    port: int


class Costs(NamedTuple):
    """One kind under one load: the median processor µs per request, and requests per second."""

    cpu_us: float
    per_second: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fetch_floor", description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", default="ottla", help=f"brokers beside the floor, comma-separated; of {', '.join(KINDS)}")
    parser.add_argument("--turns", type=int, default=TURNS, help="of every side")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of every window")
    parser.add_argument("--dir", help="where the brokers keep their data meanwhile")
    asked = parser.parse_args(arguments)
    cpus = sorted(os.sched_getaffinity(0))
    cores = Cores(cpus[0], cpus[-1]) if len(cpus) > 1 else Cores(None, None)
    pace = replace(NORMAL.pace, warm_up_s=0.3, duration_s=asked.seconds, prefill_bytes=PREFILL_BYTES)
    plan = Plan(cores, partial(print, file=sys.stderr), replace(NORMAL, pace=pace))
    with tempfile.TemporaryDirectory(prefix="fetch-floor-", dir=asked.dir) as scratch:
        results = measure(asked.kinds.split(","), asked.turns, Path(scratch), plan)
    print(f"{'':<20}{'':<12}{'µs CPU':>10}{'× floor':>10}{'requests/s':>12}")
    for title, found in results.items():
        for kind, costs in found.items():
            ratio = costs.cpu_us / found[FLOOR].cpu_us
            print(f"{title:<20}{kind:<12}{costs.cpu_us:>10.1f}{ratio:>10.1f}{costs.per_second:>12,.0f}")
    return 0


def measure(kinds: Sequence[str], turns: int, scratch: Path, plan: Plan) -> dict[str, dict[str, Costs]]:
    """For every load, what every kind and the floor cost."""
    with ExitStack() as stack:
        brokers: dict[str, tuple[Server, Topic]] = {}
        for kind in kinds:
            bench = stack.enter_context(running(kind, Turn(kind), scratch / kind, plan))
            with Admin("127.0.0.1", bench.broker.port) as admin:
                topic = admin.create_topic("fetched", _PARTITIONS)
            prepare_fetches(bench, topic)
            brokers[kind] = Server(bench.broker.pid, bench.broker.port), topic
        return {fetch.title: _measure_load(fetch, brokers, turns, scratch, plan) for fetch in FETCH}


def _measure_load(fetch: Fetch, brokers: dict[str, tuple[Server, Topic]], turns: int, scratch: Path, plan: Plan) -> dict[str, Costs]:
    found: dict[str, list[Measured]] = {kind: [] for kind in (FLOOR, *brokers)}
    step = len(batch_of_16_kib("none")(int(time.time() * 1000)))
    body = fetch.max_bytes // step * step
    source = scratch / "floor.log"
    if not source.exists():
        source.write_bytes(os.urandom(PREFILL_BATCH_BYTES) * (PREFILL_BYTES // PREFILL_BATCH_BYTES))
    for _ in range(turns):
        for kind, (server, topic) in brokers.items():
            load = fetch.load(topic, plan.size.pace)
            found[kind].append(_run(server, load, plan))
        with floor_server(source, step, body, _HEAD_BYTES, plan.cores.broker) as floor:
            found[FLOOR].append(_run(floor, replace(load, error_offsets=()), plan))
    return {kind: _costs(several) for kind, several in found.items()}


def _run(server: Server, load: Load, plan: Plan) -> Measured:
    probe: Callable[[], float] = partial(process.cpu_s, server.pid)
    return run_load("127.0.0.1", server.port, load, pin_cpu=plan.cores.generator, probe=probe)


def _costs(several: Sequence[Measured]) -> Costs:
    cpu_us = statistics.median(each.broker_cpu_s / max(each.answered, 1) * 1e6 for each in several)
    return Costs(cpu_us, statistics.median(each.per_second for each in several))


@contextmanager
def floor_server(source: Path, step: int, body: int, head: int, cpu: int | None) -> Iterator[Server]:
    """The C program, serving parts of `body` bytes of `source` behind `head` bytes."""
    command = [str(compiled("fetch_floor")), str(source), *map(str, (step, body, head, _TAIL_BYTES, _SEND_BUFFER_BYTES))]
    with pinned_to(cpu), subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield Server(server.pid, int(server.stdout.readline()))
        finally:
            server.stdin.close()


if __name__ == "__main__":
    sys.exit(main())
