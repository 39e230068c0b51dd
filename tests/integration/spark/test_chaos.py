"""The pipeline's verdict holds while the brokers of a cluster are killed, stopped and paused.

Spark and three brokers at once are much for the ordinary run, so only `make validate` runs it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.integration.spark.test_validate import ottla, validate
from tests.support.spark import deep, needs_spark

pytestmark = [
    *needs_spark,
    pytest.mark.slow,
    deep,
]


def test_the_verdict_holds_while_brokers_are_killed_stopped_and_paused(tmp_path: Path) -> None:
    cluster = str(tmp_path / "cluster")
    up = ottla(tmp_path, "cluster", "up", "3", "--dir", cluster, "--base-port", "0", "--detach")
    assert up.returncode == 0, up
    try:
        done = validate(tmp_path, up.stdout.split()[-1], "--rows", "200000", "--chaos", cluster, "--seed", "3")
        assert done.returncode == 0, done
        report = json.loads((tmp_path / "report" / "report.json").read_text())
        assert report["holds"]
        assert re.match(
            rf"{len(report['faults'])}, \d+ of them while records were written and read: \w+ broker \d", report["summary"]["faults"]
        )
    finally:
        ottla(tmp_path, "cluster", "down", "--dir", cluster)
