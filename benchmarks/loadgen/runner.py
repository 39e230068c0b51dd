"""Runs loadgen against a broker and reads its reports.

The generator announces the start and end of its measuring window. The caller's `probe` is called at both, so that processor time covers the
same window as the requests. With `interval_s` it also reports the answers of each interval. Answers that it shows are decoded after its
end.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from benchmarks.loadgen.answers import WrongAnswerError, check_shown
from benchmarks.loadgen.compiler import compiled
from benchmarks.loadgen.prepared import Prepared, write_frames
from benchmarks.report.histogram import Histogram
from tests.support.apache_kafka import pinned_to, process_guard

_MEANINGS = {-2: ": shorter than the place of its error code", -3: ": shorter than a good answer"}


class LoadFailedError(RuntimeError):
    """The broker answered with errors, closed a connection or stopped answering: the numbers would mean nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to send: frames dealt round robin to connections; a closed loop unless `rate` (requests per second) is given.

    A frame that is not prepared has its error codes at `error_offsets`. Frames of `opening` are dealt and sent once, when the connections
    are opened. With `lead` no connection is more than `lead` requests ahead of the slowest. A load that `rests` sleeps between its
    requests, so that it leaves the core to another generator; its latencies then mean little.
    """

    frames: Sequence[bytes | Prepared]
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
    opening: Sequence[Prepared] = ()
    lead: int = 0
    rests: bool = False

    def prepared(self) -> list[Prepared]:
        """The frames of the load, all prepared; equal frames are the same object."""
        made = {id(each): each if isinstance(each, Prepared) else Prepared(each, self.error_offsets) for each in self.frames}
        return [made[id(each)] for each in self.frames]


@dataclass(frozen=True, slots=True)
class Interval:
    """The answers since the previous interval; `at_s` is its end, counted from the beginning of the window.

    `gap_ns` is the longest time for which the generator of an open loop did not run.
    """

    at_s: float
    latency_ns: Histogram
    gap_ns: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """One window: the requests answered in it, and their cost.

    `answered` belongs to `broker_cpu_s`: on an open loop that is also what was sent before the window and answered in it. `rates` has the
    requests per second of each window, if this is the sum of windows.
    """

    responses: int
    answered: int
    window_s: float
    bytes_sent: int
    bytes_received: int
    latency_ns: Histogram
    generator_cpu_s: float
    broker_cpu_s: float
    rates: tuple[float, ...] = ()

    @property
    def per_second(self) -> float:
        """Of several windows the median."""
        if self.rates:
            return statistics.median(self.rates)
        return self.responses / self.window_s if self.window_s else 0.0


def side_by_side(windows: Sequence[Measured]) -> Measured:
    """The sum of generators that ran at the same time, each with the processor time of all brokers for its probe."""
    return Measured(
        responses=sum(each.responses for each in windows),
        answered=sum(each.answered for each in windows),
        window_s=sum(each.window_s for each in windows) / len(windows),
        bytes_sent=sum(each.bytes_sent for each in windows),
        bytes_received=sum(each.bytes_received for each in windows),
        latency_ns=reduce(Histogram.merged, (each.latency_ns for each in windows)),
        generator_cpu_s=sum(each.generator_cpu_s for each in windows),
        broker_cpu_s=sum(each.broker_cpu_s for each in windows) / len(windows),
    )


def one_after_another(windows: Sequence[Measured]) -> Measured:
    """The sum of windows of the same load."""
    return replace(
        side_by_side(windows),
        window_s=sum(each.window_s for each in windows),
        broker_cpu_s=sum(each.broker_cpu_s for each in windows),
        rates=tuple(each.per_second for each in windows),
    )


def run_load(
    host: str,
    port: int,
    load: Load,
    *,
    pin_cpu: int | None = None,
    probe: Callable[[], float] = lambda: 0.0,
    on_interval: Callable[[Interval], None] = lambda _: None,
) -> Measured:
    """Run one load to its end. `probe` returns the broker's processor seconds so far. Raises LoadFailedError, NoCompilerError."""
    with (
        tempfile.NamedTemporaryFile(prefix="loadgen-", suffix=".frames") as prepared,
        tempfile.NamedTemporaryFile(prefix="loadgen-", suffix=".answers") as shown,
    ):
        frames = write_frames(prepared, load.opening, load.prepared())
        prepared.flush()
        command = [str(compiled("loadgen")), "--host", host, "--port", str(port), "--frames", prepared.name, "--answers", shown.name]
        with (
            pinned_to(pin_cpu),
            subprocess.Popen([*command, *_options(load)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as generator,
        ):
            process_guard().watch(generator.pid)
            try:
                before, after, report = _follow(generator, probe, on_interval)
            finally:
                generator.kill()
                generator.wait()
                process_guard().release(generator.pid)
        if report["errors"] or report["unanswered"]:
            code, unanswered = report["first_error"], report["unanswered"]
            meaning = _MEANINGS.get(code, "")
            raise LoadFailedError(f"{report['errors']} responses with errors (first code {code}{meaning}), unanswered: {unanswered}")
        try:
            check_shown(shown, frames)
        except WrongAnswerError as wrong:
            raise LoadFailedError(str(wrong)) from wrong
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
    options += ["--interval", str(load.interval_s), "--lead", str(load.lead)]
    return [*options, *["--discard"] * load.discard_bodies, *["--rests"] * load.rests]


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
            on_interval(Interval(report["at_s"], _latency(report), report["gap_ns"]))
        else:
            return before, probe(), report
    raise LoadFailedError(generator.stderr.read().strip() or f"the generator ended with exit code {generator.wait()} and said nothing")
