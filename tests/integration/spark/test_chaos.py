"""The pipeline's verdict holds while the brokers of a cluster, and copiers, are killed, stopped and paused.

Spark and three brokers at once are much for the ordinary run, so only `make validate` runs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.spark.test_validate import ottla, validate
from tests.support.spark import deep, needs_spark

pytestmark = [
    *needs_spark,
    pytest.mark.slow,
    deep,
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The folder and the addresses of three brokers."""
    folder = tmp_path / "cluster"
    up = ottla(tmp_path, "cluster", "up", "3", "--dir", str(folder), "--base-port", "0", "--detach")
    assert up.returncode == 0, up
    try:
        yield folder, up.stdout.split()[-1]
    finally:
        ottla(tmp_path, "cluster", "down", "--dir", str(folder))


def held(tmp_path: Path, cluster: tuple[Path, str], *arguments: str) -> dict[str, Any]:
    """The report of a run that holds, with some of the faults while records were written and read."""
    folder, bootstrap = cluster
    done = validate(tmp_path, bootstrap, "--chaos", str(folder), "--seed", "3", *arguments)
    assert done.returncode == 0, done
    report: dict[str, Any] = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["holds"]
    assert re.match(
        rf"{len(report['faults'])}, \d+ of them while records were written and read: \w+ (broker|copier) \d", report["summary"]["faults"]
    )
    return report


def test_the_verdict_holds_while_brokers_are_killed_stopped_and_paused(tmp_path: Path, cluster: tuple[Path, str]) -> None:
    held(tmp_path, cluster, "--rows", "200000")


def test_copies_are_made_exactly_once_while_brokers_and_copiers_are_killed_stopped_and_paused(
    tmp_path: Path, cluster: tuple[Path, str]
) -> None:
    report = held(tmp_path, cluster, "--rows", "20000", "--exactly-once", "--transaction-rows", "50")
    assert report["transactions"]["aborted_records"] > 0
    assert {name for fault in report["faults"] for name in fault} >= {"broker", "copier"}
