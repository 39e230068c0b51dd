"""`python -m tests.chaos.fault_matrix [--only TEXT ...] [--list]`: every cell of the fault matrix, a line each, and the table.

`--only` takes the cells whose names contain one of the texts. Goes on after a cell that failed, with new brokers; exit status 1 then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from tests.support.fault_cells import CELLS, Cell
from tests.support.fault_cluster import FaultCluster, a_fault_cluster
from tests.support.fault_table import Outcome, table


class Clusters:
    """One cluster at a time, kept for as many cells as go well on the same store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._held = ExitStack()
        self._store = ""
        self._cluster: FaultCluster | None = None

    def on(self, store: str) -> FaultCluster:
        """The one that runs, or a new one."""
        if self._cluster is None or self._store != store:
            self.drop()
            self._count += 1
            self._cluster = self._held.enter_context(a_fault_cluster(self._directory / str(self._count), store))
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
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fault_matrix", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    cells = [cell for cell in CELLS if not options.only or any(text in cell.name for text in options.only)]
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fault-matrix-") as directory:
        clusters = Clusters(Path(directory))
        outcomes = [_run(clusters, cell) for cell in sorted(cells, key=lambda cell: cell.store)]
        clusters.drop()
    print("\n".join(table(outcomes)))
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if all(outcome[4] for outcome in outcomes) else 1


def _run(clusters: Clusters, cell: Cell) -> Outcome:
    try:
        result = clusters.on(cell.store).run(cell)
    except Exception as failure:
        traceback.print_exc()
        clusters.drop(failure)
        print(f"{cell.name:<52} FAILED; again with: python -m tests.chaos.fault_matrix --only {cell.name}", flush=True)
        return cell, 0.0, 0.0, 0.0, False
    print(result.line, flush=True)
    return cell, result.produce_stall_s, result.consume_stall_s, result.whole_s, True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
