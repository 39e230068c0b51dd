"""`ottla validate` on a standalone cluster of Spark: a master, a worker, and executors that are other processes than the driver."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.spark.test_validate import validate
from tests.support.broker_process import a_broker
from tests.support.spark import deep, needs_spark
from tests.support.spark_cluster import a_standalone_cluster

pytestmark = [*needs_spark, deep]

ROWS = 2_000
LOCAL = [f"--spark-conf={name}=127.0.0.1" for name in ("spark.driver.host", "spark.driver.bindAddress")]


def test_executors_of_a_standalone_cluster_do_the_work(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with a_broker(tmp_path / "broker") as broker, a_standalone_cluster(tmp_path / "spark") as master:
        done = validate(run, broker.bootstrap, "--master", master, "--rows", str(ROWS), "--spark-conf=spark.executor.memory=700m", *LOCAL)
        assert done.returncode == 0, (done, *((path, path.read_text()) for path in (tmp_path / "spark").rglob("stderr")))
        assert list((tmp_path / "spark" / "worker" / "work").glob("app-*/0/stderr"))
    report = json.loads((run / "report" / "report.json").read_text())
    assert report["records"] == ROWS
    assert report["environment"]["master"] == master
    assert [path.name for path in run.iterdir()] == ["report"]
