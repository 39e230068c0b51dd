"""Compares two brokers in short alternating windows: `python -m benchmarks.pairs --kinds ottla-other,ottla --only produce-10x10`.

Both brokers run all the time, bound to the same core; the idle one costs nothing. Windows come in pairs, and the sides take turns in being
the first of a pair. So a machine that slows down, or is shared, affects both alike. Prints medians of the windows, and median and quartiles
of the pairs' ratios: of requests or transactions per second, and of the broker's processor time for each, which a busy machine affects
less. The p99 is that of all windows of a side together: of a request, or of a commit. Loads that end in -rf3 run on two clusters of three
brokers, on all cores. `ottla-other` is the checkout that OTTLA_OTHER names, with its own `.venv`.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, repeat
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.brokers import clusters, process
from benchmarks.brokers.kinds import KINDS
from benchmarks.loadgen.runner import Measured
from benchmarks.loadgen.transactional import run_transactions
from benchmarks.loads import workloads
from benchmarks.loads.shapes import LoadMaker, closed_loops
from benchmarks.loads.stage import Stage
from benchmarks.loads.transactions import ROUND_TRIP, shapes
from benchmarks.parts.part import running
from benchmarks.parts.transactions import CONFIG, THREE, OneBroker, ThreeBrokers
from benchmarks.report.histogram import Histogram
from benchmarks.turns.choices import folder, patterns, several
from benchmarks.turns.sizes import NORMAL, Pace
from benchmarks.turns.turn import FAILURES, Plan, Turn, two_cores
from tests.support.apache_kafka import process_guard

SHAPES = {shape.key: shape for shape in closed_loops(NORMAL)}
WORKLOADS = {each.key: each for each in workloads.LOADS if not each.rate}
TRANSACTIONS = {shape.key: shape for shape in (*shapes(), ROUND_TRIP)}
LOADS = [*WORKLOADS, *SHAPES, *TRANSACTIONS, *(key + THREE for key in TRANSACTIONS)]
_WARM_UP_S = 0.1
_LATER_SHARE = 8
"""The warm-up of a cluster before its second load, and those after it, is this part of that before the first."""
_WIDTH = 170
Pair = tuple[Measured, Measured]
Window = Callable[[Pace], Measured]
"""Runs a load for a window of this length. Raises the exceptions in FAILURES."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two brokers or clusters. `prepare` makes the windows of a load, warmed up; `clear` removes its topics."""

    prepare: Callable[[str], Window]
    clear: Callable[[], None]


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
    on_three = [key for key in asked.only if key.endswith(THREE)]
    with tempfile.TemporaryDirectory(prefix="pairs-", dir=asked.dir) as scratch:
        process_guard().remove_tree(Path(scratch))
        for keys, side_of in (([key for key in asked.only if key not in on_three], _one_broker), (on_three, _three_brokers)):
            with ExitStack() as brokers:
                directories = [Path(scratch) / str(at) / "broker" for at in range(2)] if keys else []
                sides = [brokers.enter_context(side_of(kind, at, plan)) for kind, at in zip(asked.kinds, directories, strict=False)]
                for key in keys:
                    try:
                        pairs = measure(sides, key, pace, asked.pairs)
                    except FAILURES as failure:
                        has_failed = True
                        console.print(f"{key} FAILED: {failure}", style="red", highlight=False)
                        continue
                    table.add_row(*row(key, pairs))
                    console.print(f"  {' | '.join(row(key, pairs))}", highlight=False)
    console.print(table)
    return 1 if has_failed else 0


@contextmanager
def _one_broker(kind: str, directory: Path, plan: Plan) -> Iterator[Side]:
    with running(kind, Turn(KINDS[kind].label), directory, plan, config=CONFIG) as bench:
        stage = Stage(bench)
        cpu_s = partial(process.cpu_s, bench.broker.pid)

        def made(key: str) -> Window:
            if key in WORKLOADS:
                load = _workload(WORKLOADS[key], stage)
                return lambda pace: bench.load(load(pace))
            if key in SHAPES:
                make = SHAPES[key].prepare(stage)
                return lambda pace: bench.load(make(pace))
            begin = TRANSACTIONS[key].prepare(OneBroker(stage))
            return lambda pace: run_transactions(begin(pace), pin_cpu=plan.cores.generator, probe=cpu_s).window

        def prepare(key: str) -> Window:
            window = made(key)
            briefly = replace(stage.pace, warm_up_s=0, duration_s=stage.pace.warm_up_slice_s / 2)
            bench.warm_up_by(lambda: window(briefly), stage.pace.warm_up_limit_s)
            return window

        yield Side(prepare, stage.clear)


def _workload(asked: workloads.Produce | workloads.Fetch, stage: Stage) -> LoadMaker:
    """A load of `single`, on a topic of its own."""
    is_read = isinstance(asked, workloads.Fetch)
    (topic,) = stage.topics([asked.key], workloads.FETCH_CONNECTIONS if is_read else workloads.PRODUCE_CONNECTIONS)
    if is_read:
        for partition in range(topic.partitions):
            stage.bench.load(workloads.prefill(topic, partition, stage.pace))
    return lambda pace: asked.load(topic, pace)


@contextmanager
def _three_brokers(kind: str, directory: Path, plan: Plan) -> Iterator[Side]:
    cluster = clusters.KINDS[kind](directory)
    try:
        cluster.start()
        warm_up_s = iter(chain([cluster.warm_up_s], repeat(cluster.warm_up_s / _LATER_SHARE)))

        def cpu_s() -> float:
            return sum(process.cpu_s(cluster.pid(broker_id)) for broker_id in range(clusters.BROKERS))

        def prepare(key: str) -> Window:
            begin = TRANSACTIONS[key.removesuffix(THREE)].prepare(ThreeBrokers(cluster))
            run_transactions(begin(replace(plan.size.pace, warm_up_s=0, duration_s=next(warm_up_s))))
            return lambda pace: run_transactions(begin(pace), probe=cpu_s).window

        yield Side(prepare, lambda: None)
    finally:
        cluster.stop()


def measure(sides: Sequence[Side], key: str, pace: Pace, count: int) -> list[Pair]:
    """`count` pairs of windows of a load, the first side's window first. Raises the exceptions in FAILURES."""
    try:
        windows = [side.prepare(key) for side in sides]
        pairs = []
        for number in range(count):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            measured = {side: windows[side](pace) for side in order}
            pairs.append((measured[0], measured[1]))
        return pairs
    finally:
        for side in sides:
            side.clear()


def row(key: str, pairs: Sequence[Pair]) -> list[str]:
    """The cells of a load."""
    sides = list(zip(*pairs, strict=True))
    rates = [[window.per_second for window in side] for side in sides]
    costs = [[window.broker_cpu_s / max(window.answered, 1) * 1e6 for window in side] for side in sides]
    slowest = [reduce(Histogram.merged, (window.latency_ns for window in side)).percentile(99) / 1e6 for side in sides]
    return [
        key,
        *(f"{statistics.median(side):,.0f}" for side in rates),
        _ratio([second / first for first, second in zip(*rates, strict=True) if first]),
        *(f"{statistics.median(side):,.1f}" for side in costs),
        _ratio([first / second for first, second in zip(*costs, strict=True) if second]),
        *(f"{p99_ms:.2f}" for p99_ms in slowest),
        _ratio([slowest[0] / slowest[1]] if slowest[1] else []),
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
    for what in ("per s", "µs each", "p99 ms"):
        for label in labels:
            table.add_column(f"{label}, {what}", justify="right")
        table.add_column("times better", justify="right", no_wrap=True)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", type=several("kind of broker", KINDS), default=["apache", "ottla"], help=f"two; of {', '.join(KINDS)}")
    parser.add_argument(
        "--only",
        type=patterns("load", LOADS),
        default=["produce-10x10", "produce-50x2", "fetch-10x16k", "fetch-50x2k"],
        help=f"comma-separated, also with wildcards; of {', '.join(LOADS)}",
    )
    parser.add_argument("--pairs", type=int, default=8, help="of windows, for each load")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a window")
    parser.add_argument("--dir", type=folder, help="where the brokers keep their data meanwhile")
    return parser


if __name__ == "__main__":
    sys.exit(main())
