"""The pipeline's verdict holds while the brokers of a cluster are killed, stopped and paused.

That takes minutes, so only `make validate` runs it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.integration.spark.test_validate import ottla, validate
from tests.support.spark import needs_spark

pytestmark = [
    *needs_spark,
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("OTTLA_VALIDATE_CHAOS"), reason="minutes long: make validate runs it (OTTLA_VALIDATE_CHAOS=1)"),
]


@pytest.mark.parametrize("seed", [3, 6])
def test_the_verdict_holds_while_brokers_are_killed_stopped_and_paused(tmp_path: Path, seed: int) -> None:
    cluster = str(tmp_path / "cluster")
    up = ottla(tmp_path, "cluster", "up", "3", "--dir", cluster, "--base-port", "0", "--detach")
    assert up.returncode == 0, up
    try:
        done = validate(tmp_path, up.stdout.split()[-1], "--rows", "2000000", "--chaos", cluster, "--seed", str(seed))
        assert done.returncode == 0, done
        report = json.loads((tmp_path / "report" / "report.json").read_text())
        assert report["holds"]
        assert report["faults"]
    finally:
        ottla(tmp_path, "cluster", "down", "--dir", cluster)
