"""Compares Ottla and Apache Kafka cell by cell: the waits of clients, and the fate of records. Pure.

`Sides` collects the turns of every cell and kind; the tables show medians. A cell that only one kind has (there is no embedded store in
Apache Kafka) is shown, but not compared.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.fault_cells import Cell

MEASURES = ("produce", "consume", "in sync")
"""The longest time without an acknowledgement, without a record read, and from the end of the fault to full ISRs; all in seconds."""
SLOWER_RATIO, SLOWER_SECONDS = 1.2, 0.25
"""A difference below either is taken for noise: one turn of a cell varies by as much."""
RULES = ("lost", "vanished", "duplicate", "reordered", "gap", "twice", "changed", "misplaced", "backwards", "unseen", "behind")


class Turn(NamedTuple):
    """The result of one run of a cell; `failure` is the reason for a missing result."""

    times: tuple[float, float, float]
    found: dict[str, int]
    failure: str = ""


class Row(NamedTuple):
    """One cell: medians by measure, for the first kind and the second, None where no turn of it went well."""

    cell: Cell
    ours: tuple[float, float, float] | None
    theirs: tuple[float, float, float] | None
    our_records: str
    their_records: str

    def ratio(self, measure: int) -> float | None:
        """Theirs over ours: above 1, ours recovers sooner."""
        if self.ours is None or self.theirs is None:
            return None
        return max(self.theirs[measure], 0.01) / max(self.ours[measure], 0.01)

    def is_slower(self, measure: int) -> bool:
        """Whether ours takes longer than noise explains."""
        if self.ours is None or self.theirs is None:
            return False
        mine, other = self.ours[measure], self.theirs[measure]
        return mine > other * SLOWER_RATIO and mine > other + SLOWER_SECONDS


class Sides:
    """Turns of cells by kind, as they come."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = tuple(kinds)
        self._turns: dict[Cell, dict[str, list[Turn]]] = {}

    def add(self, cell: Cell, kind: str, turn: Turn) -> None:
        """One more."""
        self._turns.setdefault(cell, {}).setdefault(kind, []).append(turn)

    def rows(self) -> list[Row]:
        """In the order of the cells' first turns."""
        ours, theirs = self.kinds[0], self.kinds[-1]
        return [
            Row(cell, _medians(of.get(ours, [])), _medians(of.get(theirs, [])), _records(of.get(ours, [])), _records(of.get(theirs, [])))
            for cell, of in self._turns.items()
        ]

    def failures(self) -> list[str]:
        """Each turn that came to no result."""
        return [
            f"{kind}, {cell.name}: {turn.failure}"
            for cell, of in self._turns.items()
            for kind, turns in of.items()
            for turn in turns
            if turn.failure
        ]

    def raw(self) -> list[dict[str, object]]:
        """Every number, for a file."""
        return [
            {"cell": cell.name, "kind": kind, "seconds": dict(zip(MEASURES, turn.times, strict=True)), **turn._asdict()}
            for cell, of in self._turns.items()
            for kind, turns in of.items()
            for turn in turns
        ]


def _medians(turns: Sequence[Turn]) -> tuple[float, float, float] | None:
    well = [turn.times for turn in turns if not turn.failure]
    if not well:
        return None
    return (statistics.median(t[0] for t in well), statistics.median(t[1] for t in well), statistics.median(t[2] for t in well))


def _records(turns: Sequence[Turn]) -> str:
    """`3 lost, 1 duplicate` over all turns; `-` when all are where they should be."""
    if not turns:
        return ""
    total = sum((Counter(turn.found) for turn in turns), Counter[str]())
    said = [f"{total[rule]} {rule}" for rule in RULES if total[rule]]
    failed = sum(bool(turn.failure) for turn in turns)
    if failed:
        said.append(f"{failed} of {len(turns)} turns FAILED")
    return ", ".join(said) or "-"


def cell_table(sides: Sides) -> list[list[str]]:
    """Heading and a row per cell."""
    ours, theirs = sides.kinds[0], sides.kinds[-1]
    heading = ["cell"]
    for measure in MEASURES:
        heading += [f"{measure}: {ours} s", f"{theirs} s", "ratio"]
    lines = [[*heading, f"records: {ours}", theirs]]
    for row in sides.rows():
        line = [row.cell.name]
        for at in range(len(MEASURES)):
            line += [_seconds(row.ours, at), _seconds(row.theirs, at), _ratio(row, at)]
        lines.append([*line, row.our_records, row.their_records])
    return lines


def group_table(sides: Sides) -> list[list[str]]:
    """Heading and a row per fault, target, number of acknowledgements and client: mean ratios, and in how many cells ours is slower."""
    rows = [row for row in sides.rows() if row.ours and row.theirs]
    lines = [["cells", "compared", *(f"{measure}: mean ratio" for measure in MEASURES), *(f"slower: {measure}" for measure in MEASURES)]]
    groups: list[tuple[str, list[Row]]] = [("all", rows)]
    for of in ("fault", "target", "acks", "client"):
        values = sorted({str(getattr(row.cell, of)) for row in rows})
        groups += [(f"{of} {value}", [row for row in rows if getattr(row.cell, of) == value]) for value in values]
    for name, found in groups:
        line = [name, str(len(found))]
        line += [_mean_ratio(found, at) for at in range(len(MEASURES))]
        line += [str(sum(row.is_slower(at) for row in found)) for at in range(len(MEASURES))]
        lines.append(line)
    return lines


def markdown(table: Sequence[Sequence[str]]) -> str:
    """For a page."""
    heading, *rows = table
    marks = ["---", *("---:" for _ in heading[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heading, marks, *rows)) + "\n"


def plain(table: Sequence[Sequence[str]]) -> str:
    """For a terminal."""
    widths = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(line, widths, strict=True)))
        for line in table
    )


def _seconds(times: tuple[float, float, float] | None, at: int) -> str:
    return "" if times is None else f"{times[at]:.2f}"


def _ratio(row: Row, at: int) -> str:
    ratio = row.ratio(at)
    return "" if ratio is None else f"{ratio:.2f}{' SLOWER' if row.is_slower(at) else ''}"


def _mean_ratio(rows: Sequence[Row], at: int) -> str:
    """The geometric mean."""
    logs = [math.log(ratio) for row in rows if (ratio := row.ratio(at)) is not None]
    return f"{math.exp(statistics.fmean(logs)):.2f}" if logs else ""
