"""Compares two brokers in short alternating windows: `python -m benchmarks.pairs --kinds ottla-other,ottla --only produce-10x10`.

Both brokers run all the time, bound to the same core; the idle one costs nothing. Windows come in pairs, and the sides take turns in being
the first of a pair. So a machine that slows down, or is shared, affects both alike. Prints medians of the windows, and median and quartiles
of the pairs' ratios: of requests per second, and of the broker's processor time per request, which a busy machine affects less.
`ottla-other` is the checkout that OTTLA_OTHER names, with its own `.venv`.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.brokers import KINDS
from benchmarks.choices import folder, patterns, several
from benchmarks.loadgen.runner import Measured
from benchmarks.parts.part import running
from benchmarks.shapes import LoadMaker, Shape, closed_loops
from benchmarks.sizes import NORMAL
from benchmarks.stage import Stage
from benchmarks.turns import FAILURES, Plan, Turn, two_cores
from tests.support.apache_kafka import process_guard

SHAPES = {shape.key: shape for shape in closed_loops(NORMAL)}
_WARM_UP_S = 0.1
_WIDTH = 150
Pair = tuple[Measured, Measured]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    asked = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    pace = replace(NORMAL.pace, warm_up_s=_WARM_UP_S, duration_s=asked.seconds, prefill_bytes=NORMAL.pace.prefill_bytes // 4)
    plan = Plan(two_cores(), lambda text: console.print(f"  {text}", highlight=False), replace(NORMAL, pace=pace), frozenset(asked.only))
    labels = [KINDS[kind].label for kind in asked.kinds]
    if len(labels) != 2:
        raise SystemExit("--kinds: two are compared")
    has_failed = False
    table = _table(labels)
    with tempfile.TemporaryDirectory(prefix="pairs-", dir=asked.dir) as scratch, ExitStack() as brokers:
        process_guard().remove_tree(Path(scratch))
        stages = [
            Stage(brokers.enter_context(running(kind, Turn(label), Path(scratch) / str(at) / "broker", plan)))
            for at, (kind, label) in enumerate(zip(asked.kinds, labels, strict=True))
        ]
        for key in asked.only:
            try:
                pairs = measure(stages, SHAPES[key], asked.pairs)
            except FAILURES as failure:
                has_failed = True
                console.print(f"{key} FAILED: {failure}", style="red", highlight=False)
                continue
            table.add_row(*row(key, pairs))
            console.print(f"  {' | '.join(row(key, pairs))}", highlight=False)
    console.print(table)
    return 1 if has_failed else 0


def measure(stages: Sequence[Stage], shape: Shape, count: int) -> list[Pair]:
    """`count` pairs of windows of a shape, the first side's window first. Raises the exceptions in FAILURES."""
    try:
        makers = [shape.prepare(stage) for stage in stages]
        for stage, make in zip(stages, makers, strict=True):
            _warm_up(stage, make)
        pairs = []
        for number in range(count):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            windows = {side: stages[side].bench.load(makers[side](stages[side].pace)) for side in order}
            pairs.append((windows[0], windows[1]))
        return pairs
    finally:
        for stage in stages:
            stage.clear()


def _warm_up(stage: Stage, make: LoadMaker) -> None:
    briefly = replace(stage.pace, warm_up_s=0, duration_s=stage.pace.warm_up_slice_s / 2)
    stage.bench.warm_up_by(lambda: stage.bench.load(make(briefly)), stage.pace.warm_up_limit_s)


def row(key: str, pairs: Sequence[Pair]) -> list[str]:
    """The cells of a shape."""
    rates = [[window.per_second for window in side] for side in zip(*pairs, strict=True)]
    costs = [[window.broker_cpu_s / max(window.answered, 1) * 1e6 for window in side] for side in zip(*pairs, strict=True)]
    return [
        key,
        *(f"{statistics.median(side):,.0f}" for side in rates),
        _ratio([second / first for first, second in zip(*rates, strict=True) if first]),
        *(f"{statistics.median(side):,.1f}" for side in costs),
        _ratio([first / second for first, second in zip(*costs, strict=True) if second]),
    ]


def _ratio(ratios: Sequence[float]) -> str:
    """Above 1 the second side is better."""
    if len(ratios) < 2:
        return f"{ratios[0]:.2f} ×" if ratios else "-"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} × ({low:.2f} to {high:.2f})"


def _table(labels: Sequence[str]) -> Table:
    table = Table(title="Pairs of windows", title_justify="left")
    table.add_column("work")
    for what in ("req/s", "µs/req"):
        for label in labels:
            table.add_column(f"{label}, {what}", justify="right")
        table.add_column("times better", justify="right", no_wrap=True)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", type=several("kind of broker", KINDS), default=["apache", "ottla"], help=f"two; of {', '.join(KINDS)}")
    parser.add_argument(
        "--only",
        type=patterns("shape", list(SHAPES)),
        default=["produce-10x10", "produce-50x2", "fetch-10x16k", "fetch-50x2k"],
        help=f"comma-separated, also with wildcards; of {', '.join(SHAPES)}",
    )
    parser.add_argument("--pairs", type=int, default=8, help="of windows, for each shape")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a window")
    parser.add_argument("--dir", type=folder, help="where the brokers keep their data meanwhile")
    return parser


if __name__ == "__main__":
    sys.exit(main())
