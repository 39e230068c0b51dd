"""`python -m tests.chaos.fault_matrix [--only TEXT ...] [--list]`: every cell of the fault matrix, a line each, and the table.

`--only` takes the cells whose names contain one of the texts. Goes on after a cell that failed, with new brokers; exit status 1 then.
`--kinds ottla,apache` runs each cell on three brokers of Ottla and on three of Apache Kafka 3.9.1 with the same settings, in turns, and
compares how long clients wait and what happens to records; the page of that goes to `--results`. There the fault comes at another moment
in every turn: how long a session outlives its broker depends on when that was last heard, and load that begins alike would always meet
one kind early and the other late between two of its pings.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.brokers.machine import machine_facts
from tests.support.cluster import SESSION_TIMEOUT_MS
from tests.support.fault_cells import CELLS, Cell
from tests.support.fault_cluster import APACHE, OTTLA, FaultCluster, a_fault_cluster
from tests.support.fault_comparison import Sides, Turn, cell_table, group_table, markdown, plain
from tests.support.fault_table import Outcome, table

_RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


class Clusters:
    """One cluster of a kind at a time, kept for as many cells as go well on the same store."""

    def __init__(self, directory: Path, kind: str = OTTLA, cut_seconds: float = 0.0) -> None:
        self._directory = directory
        self._kind = kind
        self._cut_seconds = cut_seconds
        self._count = 0
        self._held = ExitStack()
        self._store = ""
        self._cluster: FaultCluster | None = None

    def on(self, store: str) -> FaultCluster:
        """The one that runs, or a new one."""
        if self._cluster is None or self._store != store:
            self.drop()
            self._count += 1
            directory = self._directory / f"{self._kind}-{self._count}"
            self._cluster = self._held.enter_context(a_fault_cluster(directory, store, self._kind, self._cut_seconds))
            self._store = store
        return self._cluster

    def drop(self, failure: BaseException | None = None) -> None:
        """End it; with a failure its brokers say what they logged."""
        held, self._held, self._cluster = self._held, ExitStack(), None
        if failure is None:
            held.close()
            return
        try:
            held.__exit__(type(failure), failure, failure.__traceback__)
        except BaseException as again:
            if again is not failure:
                raise


def main(arguments: list[str]) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    cells = [cell for cell in CELLS if not options.only or any(text in cell.name for text in options.only)]
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    began = time.monotonic()
    outcomes: list[Outcome] = []
    sides = Sides(options.kinds)
    page = _Page(options.results or _RESULTS / time.strftime("%Y-%m-%dT%H%M%S-faults")) if len(options.kinds) > 1 else None
    with tempfile.TemporaryDirectory(prefix="fault-matrix-") as directory, ExitStack() as held:
        clusters = {kind: Clusters(Path(directory), kind, options.cut_seconds) for kind in options.kinds}
        for each in clusters.values():
            held.callback(each.drop)
        for cell, kind, number in _turns(sorted(cells, key=lambda cell: cell.store), options.kinds, options.turns):
            moment_s = _moment_s(cell, number) if len(options.kinds) > 1 else 0.0
            outcome, turn = _run(clusters[kind], kind, cell, moment_s)
            sides.add(cell, kind, turn)
            if kind == OTTLA:
                outcomes.append(outcome)
            if page is not None:
                page.write(sides, time.monotonic() - began)
    if outcomes:
        print("\n".join(table(outcomes)))
    if page is not None:
        print(plain(cell_table(sides)), plain(group_table(sides)), *sides.failures(), page.path, sep="\n\n")
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if all(outcome[4] for outcome in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fault_matrix", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--kinds", type=_kinds, default=[OTTLA], help="ottla, apache, or both; ratios are the last's time over the first's")
    parser.add_argument("--turns", type=int, default=1, help="how often each cell runs on each kind; medians are shown")
    parser.add_argument("--cut-seconds", type=float, default=0.0, help="how long a broker is cut off, at least: whether clients get away")
    parser.add_argument("--results", type=Path, help="the folder of the page; default: one under benchmarks/results")
    return parser


def _kinds(text: str) -> list[str]:
    found = text.split(",")
    if not set(found) <= {OTTLA, APACHE}:
        raise argparse.ArgumentTypeError(f"kinds are {OTTLA} and {APACHE}")
    return found


def _turns(cells: Sequence[Cell], kinds: Sequence[str], turns: int) -> Iterator[tuple[Cell, str, int]]:
    """With the number of the turn. Kinds take turns, and in who goes first."""
    for cell in cells:
        for turn in range(turns):
            for kind in kinds if turn % 2 == 0 else reversed(kinds):
                if kind != APACHE or cell.store == "zookeeper":
                    yield cell, kind, turn


def _moment_s(cell: Cell, turn: int) -> float:
    """When the fault comes: the same for every kind, and as if by chance."""
    return random.Random(f"{cell.name} {turn}").uniform(0, SESSION_TIMEOUT_MS / 1000)


def _run(clusters: Clusters, kind: str, cell: Cell, moment_s: float) -> tuple[Outcome, Turn]:
    try:
        result = clusters.on(cell.store).run(cell, moment_s)
    except Exception as failure:
        traceback.print_exc()
        clusters.drop(failure)
        print(f"{kind:<7}{cell.name:<52} FAILED; again with: python -m tests.chaos.fault_matrix --only {cell.name}", flush=True)
        first = next(iter(str(failure).splitlines()), "")
        return (cell, 0.0, 0.0, 0.0, False), Turn((0.0, 0.0, 0.0), {}, f"{type(failure).__name__}: {first}")
    print(f"{kind:<7}{result.line}", flush=True)
    times = (result.produce_stall_s, result.consume_stall_s, result.whole_s)
    return (cell, *times, True), Turn(times, result.found)


class _Page:
    """README.md and results.json in a folder, written anew after every turn."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / "README.md"
        self._facts = machine_facts() | {"command": " ".join(["python", "-m", "tests.chaos.fault_matrix", *sys.argv[1:]])}

    def write(self, sides: Sides, took_s: float) -> None:
        """What is known so far."""
        self._directory.mkdir(parents=True, exist_ok=True)
        facts = "\n".join(f"| {name} | {fact} |" for name, fact in self._facts.items())
        failures = "\n".join(f"- {failure}" for failure in sides.failures())
        ours, theirs = sides.kinds[0], sides.kinds[-1]
        about = (
            f"{ours} beside {theirs}, {took_s / 60:.0f} minutes. Times are the longest that a producer went without an acknowledgement "
            "and a consumer without a record, and from the end of the fault until all replicas were in sync. Ratios are times of "
            f"{theirs} over those of {ours}: above 1, {ours} recovers sooner. What the faults are stands in `tests/support/fault_cells.py`."
        )
        text = [f"# Faults of {self._facts['date']}\n\n{about}\n\n| machine | |\n| --- | --- |\n{facts}\n"]
        text += [f"## Summary\n\n{markdown(group_table(sides))}", f"## Cells\n\n{markdown(cell_table(sides))}", failures, ""]
        self.path.write_text("\n".join(text), encoding="utf-8")
        (self._directory / "results.json").write_text(
            json.dumps({"machine": self._facts, "turns": sides.raw()}, indent=1), encoding="utf-8"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
