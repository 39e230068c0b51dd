"""Measures the cost of a request beyond its unavoidable system calls: `python -m benchmarks.paths.kernel_floor`.

Brokers and C programs that make only the system calls of a request (loadgen/produce_floor.c, loadgen/fetch_floor.c) serve the same
generator, in turns, bound to the same core, under the loads of `make bench`. Prints processor µs per request (user and system; the median
of the turns), also as multiples of the floor. No broker with these system calls, in any language, can be below the floor. On loopback the
floor contains the half of TCP that runs on the sender's core. The floor of produce computes no checksum and keeps no index.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.brokers import process
from benchmarks.brokers.kinds import KINDS
from benchmarks.brokers.present_memory import free_memory_present
from benchmarks.loadgen.compiler import compiled
from benchmarks.loadgen.runner import Measured, run_load
from benchmarks.loads import frames, workloads
from benchmarks.loads.admin import Admin, Topic
from benchmarks.loads.workloads import LOADS, Fetch, Produce, batch_of_16_kib
from benchmarks.parts.part import running
from benchmarks.parts.single import prepare_fetches
from benchmarks.turns.choices import folder
from benchmarks.turns.sizes import NORMAL
from benchmarks.turns.turn import Bench, Cores, Plan, Turn
from tests.support.apache_kafka import pinned_to

TURNS = 3
SECONDS = 1.5
PREFILL_BYTES = 256 << 20
FLOOR = "floor"
_PARTITIONS = 4
_HEAD_BYTES, _TAIL_BYTES = 91, 3  # what the answer to a fetch has around the records
_SEND_BUFFER_BYTES = 102_400  # socket.send.buffer.bytes
_WARM_UP_S = 2.0
_KEYS = [load.key for load in LOADS]


class Server(NamedTuple):
    """A running server: its process and its port."""

    pid: int
    port: int


class Costs(NamedTuple):
    """Medians of the turns of one kind under one load: processor µs per request, requests per second, and latency percentiles."""

    cpu_us: float
    per_second: float
    p99_ms: float
    p999_ms: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paths.kernel_floor", description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", default="ottla", help=f"brokers beside the floor, comma-separated; of {', '.join(KINDS)}")
    parser.add_argument("--loads", default=",".join(_KEYS), help="comma-separated; all by default: %(default)s")
    parser.add_argument("--turns", type=int, default=TURNS, help="of every side")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of every window")
    parser.add_argument("--dir", type=folder, help="where the data lies meanwhile")
    asked = parser.parse_args(arguments)
    unknown = {*asked.loads.split(",")} - {*_KEYS}
    if unknown:
        parser.error(f"no load of the name {', '.join(sorted(unknown))}; there are {', '.join(_KEYS)}")
    cpus = sorted(os.sched_getaffinity(0))
    cores = Cores(cpus[0], cpus[-1]) if len(cpus) > 1 else Cores(None, None)
    pace = replace(NORMAL.pace, warm_up_s=0.3, duration_s=asked.seconds, prefill_bytes=PREFILL_BYTES)
    plan = Plan(cores, partial(print, file=sys.stderr), replace(NORMAL, pace=pace), frozenset(asked.loads.split(",")))
    with free_memory_present(), tempfile.TemporaryDirectory(prefix="kernel-floor-", dir=asked.dir) as scratch:
        results = measure(asked.kinds.split(","), asked.turns, Path(scratch), plan)
    print(f"{'':<38}{'':<12}{'µs CPU':>10}{'× floor':>10}{'requests/s':>12}{'p99 ms':>9}{'p99.9 ms':>10}")
    for title, found in results.items():
        for kind, costs in found.items():
            ratio = costs.cpu_us / found[FLOOR].cpu_us
            print(
                f"{title:<38}{kind:<12}{costs.cpu_us:>10.1f}{ratio:>10.1f}{costs.per_second:>12,.0f}{costs.p99_ms:>9.2f}{costs.p999_ms:>10.2f}"
            )
    return 0


def measure(kinds: Sequence[str], turns: int, scratch: Path, plan: Plan) -> dict[str, dict[str, Costs]]:
    """The costs of every kind and of the floor, by title of the load."""
    chosen = [load for load in LOADS if load.key in plan.only]
    with ExitStack() as stack:
        benches: dict[str, Bench] = {}
        filled: dict[str, Topic] = {}
        for kind in kinds:
            bench = benches[kind] = stack.enter_context(running(kind, Turn(kind), scratch / kind, plan))
            _warm_up(bench)
            if any(isinstance(load, Fetch) for load in chosen):
                with Admin("127.0.0.1", bench.broker.port) as admin:
                    filled[kind] = admin.create_topic("fetched", _PARTITIONS)
                prepare_fetches(bench, filled[kind])
        results: dict[str, dict[str, Costs]] = {}
        for load in chosen:
            found: dict[str, list[Measured]] = {kind: [] for kind in (FLOOR, *kinds)}
            for _ in range(turns):
                for kind, bench in benches.items():
                    found[kind].append(
                        _produce(bench, load) if isinstance(load, Produce) else bench.load(load.load(filled[kind], plan.size.pace))
                    )
                found[FLOOR].append(_run_floor(load, scratch, plan))
            results[load.title] = {kind: _costs(several) for kind, several in found.items()}
    return results


def _warm_up(bench: Bench) -> None:
    with Admin("127.0.0.1", bench.broker.port) as admin:
        topic = admin.create_topic("warm-up", workloads.PRODUCE_CONNECTIONS)
        bench.warm_up(workloads.warm_up(topic, _WARM_UP_S))
        admin.delete_topic(topic.name)
    bench.until_deleted(topic.name)


def _produce(bench: Bench, load: Produce) -> Measured:
    """Produce to a new topic, which is deleted before its pages are written to the disk."""
    with Admin("127.0.0.1", bench.broker.port) as admin:
        topic = admin.create_topic(load.key, workloads.PRODUCE_CONNECTIONS)
        measured = bench.load(load.load(topic, bench.plan.size.pace))
        admin.delete_topic(topic.name)
    bench.until_deleted(topic.name)
    return measured


def _run_floor(load: Produce | Fetch, scratch: Path, plan: Plan) -> Measured:
    if isinstance(load, Produce):
        topic = Topic(load.key, bytes(16), workloads.PRODUCE_CONNECTIONS)
        server = produce_floor(scratch, frames.produce_answer_bytes(topic.name), plan.cores.broker)
    else:
        topic = Topic("fetched", bytes(16), _PARTITIONS)
        source = scratch / "floor.log"
        step = len(batch_of_16_kib("none")(int(time.time() * 1000)))
        if not source.exists():
            _append(source, os.urandom(step), PREFILL_BYTES // step)
        # Ottla sends whole batches; Apache Kafka a part of the next one, too.
        server = fetch_floor(source, step, load.max_bytes // step * step, _HEAD_BYTES, plan.cores.broker)
    with server as floor:
        asked = replace(load.load(topic, plan.size.pace), error_offsets=())
        probe = partial(process.cpu_s, floor.pid)
        return run_load("127.0.0.1", floor.port, asked, pin_cpu=plan.cores.generator, probe=probe)


def _append(path: Path, data: bytes, times: int) -> None:
    """Append with `times` writes, as brokers fill logs. One large write would leave larger pieces in the page cache, which cost less."""
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            file.write(data)


def _costs(several: Sequence[Measured]) -> Costs:
    return Costs(
        cpu_us=statistics.median(each.broker_cpu_s / max(each.answered, 1) * 1e6 for each in several),
        per_second=statistics.median(each.per_second for each in several),
        p99_ms=statistics.median(each.latency_ns.percentile(99) for each in several) / 1e6,
        p999_ms=statistics.median(each.latency_ns.percentile(99.9) for each in several) / 1e6,
    )


def produce_floor(folder: Path, answer_bytes: int, cpu: int | None) -> AbstractContextManager[Server]:
    """The C program that appends frames to files in `folder`, which have no name there, and answers `answer_bytes` to each."""
    return _serving([str(compiled("produce_floor")), str(folder), str(answer_bytes)], cpu)


def fetch_floor(source: Path, step: int, body: int, head: int, cpu: int | None) -> AbstractContextManager[Server]:
    """The C program that serves parts of `body` bytes of `source`, from multiples of `step` on, behind `head` bytes."""
    sizes = (step, body, head, _TAIL_BYTES, _SEND_BUFFER_BYTES)
    return _serving([str(compiled("fetch_floor")), str(source), *map(str, sizes)], cpu)


@contextmanager
def _serving(command: Sequence[str], cpu: int | None) -> Iterator[Server]:
    """A program that prints its port and ends with its standard input."""
    with pinned_to(cpu), subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield Server(server.pid, int(server.stdout.readline()))
        finally:
            server.stdin.close()


if __name__ == "__main__":
    sys.exit(main())
