"""Runs benchmarks/stalls/cold_reads.py: reads at the tail beside a reader of old data."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.parts.part import BROKER_LABELS, Part, running
from benchmarks.report.histogram import Histogram
from benchmarks.report.lines import Line, number, percent_name
from benchmarks.stalls import cold_reads
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Bench, Plan, Turn

_PERCENTS = (50, 99, 99.9, 100)


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """Measure the broker on its core."""
    with running(kind, turn, directory, plan, config=cold_reads.CONFIG) as bench:
        bench.attempt("old-readers", partial(_measure, bench, directory))


def _measure(bench: Bench, directory: Path) -> None:
    size = bench.plan.size
    for found in cold_reads.measure(bench.broker, directory, size.old_megabytes, size.old_s):
        latency = Histogram()
        for taken_ms in found.taken_ms:
            latency.record(int(taken_ms * 1e6))
        for percent in _PERCENTS:
            bench.turn.numbers[f"{found.key}_p{percent:g}"] = latency.percentile(percent) / 1e6
        bench.turn.numbers[f"{found.key}_rate"] = found.old_mb_per_s
        bench.plan.pass_on()
        bench.say(f"reads at the tail, {found.title}: p99 {latency.percentile(99) / 1e6:.2f} ms")


def lines(_: Size) -> Sequence[Line]:
    return [
        line
        for key, title in cold_reads.TITLES.items()
        for line in (
            *(Line(f"{key}-p{at:g}", f"{title}: {percent_name(at)}", "ms", number(f"{key}_p{at:g}"), 2, True) for at in _PERCENTS),
            *([Line(f"{key}-rate", f"{title}: old data read", "MB/s", number(f"{key}_rate"), 0)] if key != cold_reads.ALONE else []),
        )
    ]


PART = Part(
    key="old-readers",
    title="Old and new readers",
    about="One broker on one core. A client writes a batch of ten records every few milliseconds and reads it back at once; measured is "
    "that read, alone and beside a reader that jumps about in old data. The clients are Python: compare, do not quote.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
)
