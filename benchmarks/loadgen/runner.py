"""Runs loadgen against a broker and reads what it printed.

The generator announces the start and end of its measuring window; the caller's `probe` is called at both, so that processor time is
taken over the same window as the requests. With `interval_s` it also reports in between what was answered since its last report.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.histogram import Histogram
from benchmarks.loadgen.compiler import compiled
from tests.support.apache_kafka import pinned_to, process_guard


class LoadFailedError(RuntimeError):
    """The broker answered with errors, closed a connection or stopped answering: the numbers would mean nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to send: frames dealt round robin to connections, closed loop unless `rate` (requests per second) is given."""

    frames: Sequence[bytes]
    connections: int
    in_flight: int
    warm_up_s: float
    duration_s: float
    rate: float = 0.0
    total: int = 0
    max_bytes: int = 0
    error_offsets: tuple[int, ...] = ()
    discard_bodies: bool = False
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Interval:
    """What was answered since the interval before; `at_s` is its end, counted from the beginning of the window."""

    at_s: float
    latency_ns: Histogram


@dataclass(frozen=True, slots=True)
class Measured:
    """One window: requests answered in it, and what it cost.

    `answered` belongs to `broker_cpu_s`: on an open loop that is also what was sent before the window and answered in it.
    """

    responses: int
    answered: int
    window_s: float
    bytes_sent: int
    bytes_received: int
    latency_ns: Histogram
    generator_cpu_s: float
    broker_cpu_s: float

    @property
    def per_second(self) -> float:
        return self.responses / self.window_s if self.window_s else 0.0


def run_load(
    host: str,
    port: int,
    load: Load,
    *,
    pin_cpu: int | None = None,
    probe: Callable[[], float] = lambda: 0.0,
    on_interval: Callable[[Interval], None] = lambda _: None,
) -> Measured:
    """Run one load to its end. `probe` tells the broker's processor seconds so far. Raises LoadFailedError, NoCompilerError."""
    with tempfile.NamedTemporaryFile(prefix="loadgen-", suffix=".frames") as prepared:
        for frame in load.frames:
            prepared.write(frame)
        prepared.flush()
        command = [str(compiled("loadgen")), "--host", host, "--port", str(port), "--frames", prepared.name, *_options(load)]
        with pinned_to(pin_cpu), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as generator:
            process_guard().watch(generator.pid)
            try:
                before, after, report = _follow(generator, probe, on_interval)
            finally:
                generator.kill()
                generator.wait()
                process_guard().release(generator.pid)
    if report["errors"] or report["unanswered"]:
        code, unanswered = report["first_error"], report["unanswered"]
        raise LoadFailedError(f"{report['errors']} responses with errors (first code {code}), unanswered: {unanswered}")
    return Measured(
        responses=report["responses"],
        answered=report["answered"],
        window_s=report["window_s"],
        bytes_sent=report["bytes_sent"],
        bytes_received=report["bytes_received"],
        latency_ns=_latency(report),
        generator_cpu_s=report["generator_cpu_s"],
        broker_cpu_s=after - before,
    )


def _options(load: Load) -> list[str]:
    options = ["--connections", str(load.connections), "--in-flight", str(load.in_flight)]
    options += ["--warm-up", str(load.warm_up_s), "--duration", str(load.duration_s)]
    options += ["--rate", str(load.rate), "--total", str(load.total), "--max-bytes", str(load.max_bytes)]
    options += ["--interval", str(load.interval_s)]
    for offset in load.error_offsets:
        options += ["--check", str(offset)]
    return [*options, "--discard"] if load.discard_bodies else options


def _latency(report: dict[str, Any]) -> Histogram:
    return Histogram(((bucket, count) for bucket, count in report["buckets"]), report["max_ns"])


def _follow(
    generator: "subprocess.Popen[str]", probe: Callable[[], float], on_interval: Callable[[Interval], None]
) -> tuple[float, float, dict[str, Any]]:
    assert generator.stdout is not None
    assert generator.stderr is not None
    before = 0.0
    for line in generator.stdout:
        report = json.loads(line)
        if report["event"] == "measuring":
            before = probe()
        elif report["event"] == "interval":
            on_interval(Interval(report["at_s"], _latency(report)))
        else:
            return before, probe(), report
    raise LoadFailedError(generator.stderr.read().strip() or f"the generator ended with exit code {generator.wait()} and said nothing")
