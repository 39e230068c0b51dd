"""The table of the fault matrix, at the end of a run of pytest, whichever worker ran a cell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fault_cells import CELLS
from tests.support.fault_table import Outcome, table
from tests.support.kafka_python_sockets import collect_sockets_of_kafka_python

__all__ = ["collect_sockets_of_kafka_python"]

CELL_PROPERTY = "fault-matrix-cell"
"""In user_properties of a test's report: the cell's name and the three times."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write it, if any cell was run."""
    by_name = {cell.name: cell for cell in CELLS}
    outcomes: list[Outcome] = []
    for category in ("passed", "failed"):
        for report in terminalreporter.stats.get(category, []):
            if not isinstance(report, pytest.TestReport) or report.when != "call":
                continue
            for name, value in report.user_properties:
                if name == CELL_PROPERTY:
                    cell, produce, consume, whole = value
                    outcomes.append((by_name[cell], produce, consume, whole, report.passed))
    if outcomes:
        terminalreporter.section("fault matrix")
        for line in table(outcomes):
            terminalreporter.write_line(line)
