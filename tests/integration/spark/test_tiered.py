"""`ottla validate --tiered`: Spark reads a topic of which nine tenths are in the remote store only, of Ottla and of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from ottla.validate.plan import Copies, Plan, Unusable, check_tiered
from ottla.validate.verify import KINDS
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.apache_kafka_tiered import tiered_config
from tests.support.broker_process import a_broker
from tests.support.moto_server import s3_keys
from tests.support.s3_servers import an_s3_server
from tests.support.spark import deep, needs_spark, validated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_spark

ROWS = 6_000
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE,
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
}


def plan_of(bootstrap: str, folder: Path, rows: int = ROWS) -> Plan:
    small = {"batch.size": "2048"}
    return Plan(bootstrap, "tiered", rows, folder / "report", partitions=3, master="local[2]", keys=50, producer=small, tiered=True)


@contextmanager
def a_tiered_ottla(store: str, folder: Path) -> Iterator[str]:
    """The address of a broker with this store."""
    if store == "directory":
        (folder / "store").mkdir()
        with a_broker(folder / "broker", **SETTINGS, **{"rsm.config.dir": str(folder / "store")}) as broker:
            yield broker.bootstrap
        return
    with an_s3_server(store, folder / "s3", "bucket") as s3:
        keys = SETTINGS | {"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE} | s3_keys(s3.url)
        with a_broker(folder / "broker", **keys) as broker:
            yield broker.bootstrap


def check_that_it_holds(report: dict[str, Any], rows: int = ROWS) -> None:
    assert report["holds"], report["examples"]
    assert report["checks"] == dict.fromkeys(KINDS, 0)
    assert report["records"] == rows
    assert rows * 0.9 <= report["remote"]["records"] < rows
    assert report["seconds"]["tier"] > 0


@pytest.mark.parametrize(
    "store", ["directory", pytest.param("moto", marks=deep), pytest.param("versitygw", marks=[deep, pytest.mark.soak])]
)
def test_every_record_is_found_when_nine_tenths_are_in_the_remote_store_only(spark: SparkSession, store: str, tmp_path: Path) -> None:
    with a_tiered_ottla(store, tmp_path) as bootstrap:
        check_that_it_holds(validated(spark, plan_of(bootstrap, tmp_path)))


@deep
def test_every_row_that_was_copied_in_transactions_is_found_there(spark: SparkSession, tmp_path: Path) -> None:
    """Segments are smaller than the batches that librdkafka would make of a transaction."""
    with a_tiered_ottla("directory", tmp_path) as bootstrap:
        plan = replace(plan_of(bootstrap, tmp_path), copies=Copies())
        assert plan.segment_bytes < 500 * plan.record_bytes
        report = validated(spark, plan)
        assert report["holds"], report["examples"]
        assert report["remote"]["records"] >= ROWS * 0.9


@deep
@needs_apache_kafka[1]
def test_every_record_is_found_in_apache_kafka_s_remote_store(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with ApacheKafka(tmp_path / "kafka", 1, {**tiered_config(tmp_path / "store"), "log.retention.check.interval.ms": "500"}) as kafka:
        check_that_it_holds(validated(spark, plan_of(kafka.bootstrap, tmp_path)))


@deep
def test_a_record_that_the_remote_store_lost_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that were written before are verified again, against more rows than there are."""
    with a_tiered_ottla("directory", tmp_path) as bootstrap:
        plan = plan_of(bootstrap, tmp_path)
        check_that_it_holds(validated(spark, plan))
        report = validated(spark, replace(plan, generates=False, rows=ROWS + 1, report=tmp_path / "again"))
        assert not report["holds"]
        assert report["checks"]["missing"] >= 1
        assert report["remote"]["records"] >= ROWS * 0.9


def test_a_broker_without_a_remote_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with a_broker(tmp_path / "broker") as broker, pytest.raises(Unusable, match="Tiered Storage functionality is disabled"):
        validated(spark, plan_of(broker.bootstrap, tmp_path))


def test_too_few_rows_for_segments_are_refused() -> None:
    with pytest.raises(Unusable, match="100 rows fill too few segments"):
        check_tiered(plan_of("127.0.0.1:9", Path(), rows=100))
