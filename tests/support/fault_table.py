"""Formats the table of a run of the fault matrix: cells of each fault that held, and waits of clients. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.support.fault_cells import CELLS, Cell

Outcome = tuple[Cell, float, float, float, bool]
"""The cell, its three times as in `Result`, and whether it held."""


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """Lines for a terminal."""
    rows: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        rows[outcome[0].fault, outcome[0].target].append(outcome)
    total = [outcome for found in rows.values() for outcome in found]
    lines = [f"{'fault':<14}{'to':<12}{'cells':>6}{'held':>6}{'longest stall: produce':>24}{'consume':>10}{'all in sync after':>19}"]
    for (fault, target), found in sorted(rows.items()):
        lines.append(_row(fault, target, found))
    lines.append(_row("all", "", total) + f"   of {len(CELLS)} cells in the matrix")
    return lines


def _row(fault: str, target: str, found: list[Outcome]) -> str:
    held = [outcome for outcome in found if outcome[4]]
    worst = [max((outcome[at] for outcome in held), default=0.0) for at in (1, 2, 3)]
    return f"{fault:<14}{target:<12}{len(found):>6}{len(held):>6}{worst[0]:>22.2f} s{worst[1]:>8.2f} s{worst[2]:>17.2f} s"
