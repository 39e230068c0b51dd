"""`ottla validate --exactly-once`: rows copied in transactions, against Ottla and Apache Kafka, with faults and with planted ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.cluster import Cluster
from ottla.client.group_admin import NO_GROUP, describe_group
from ottla.client.transaction_admin import list_transactions
from ottla.validate import verdict
from ottla.validate.plan import Copies, Plan
from ottla.validate.verify import KINDS, OF_COPIES
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.spark import deep, needs_spark, validated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = needs_spark

ROWS = 2_000
ROOT = Path(__file__).parents[3]


def plan_of(bootstrap: str, topic: str, folder: Path, *, rows: int = ROWS, copies: Copies | None = None) -> Plan:
    wanted = copies or Copies(copiers=2, transaction_rows=100)
    return Plan(bootstrap, topic, rows, folder / "report", partitions=3, master="local[2]", keys=50, copies=wanted)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(
        tmp_path_factory.mktemp("copies") / "broker",
        transaction_state_log_replication_factor=1,
        transaction_state_log_min_isr=1,
        transaction_state_log_num_partitions=3,
        offsets_topic_replication_factor=1,
        offsets_topic_num_partitions=3,
        group_initial_rebalance_delay_ms=3000,  # so that both copiers have rows to copy
    ) as running:
        yield running


def check_that_it_holds(report: dict[str, Any], rows: int = ROWS) -> None:
    assert report["holds"], report["examples"]
    assert report["checks"] == dict.fromkeys([*KINDS, *OF_COPIES], 0)
    assert report["records"] == rows
    assert report["transactions"]["committed"] > 0
    assert report["transactions"]["aborted"] > 0
    assert report["transactions"]["aborted_records"] > 0


@deep
def test_rows_are_copied_exactly_once_and_those_of_aborted_transactions_are_hidden(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    report = validated(spark, plan_of(broker.bootstrap, "rows", tmp_path))
    check_that_it_holds(report)
    hidden = report["transactions"]["aborted_records"]
    assert report["verdict"] == f"Everything holds: 2,000 rows were copied exactly once, in order; {hidden:,} aborted records are hidden"
    with Cluster(broker.bootstrap) as cluster:
        assert describe_group(cluster, "rows-copiers").state == NO_GROUP
        ended = {each.transactional_id: each.state for each in list_transactions(cluster)}
    for number in range(2):
        assert ended[f"rows-copier-{number}"] in ("CompleteCommit", "CompleteAbort")


def with_fault(monkeypatch: pytest.MonkeyPatch, fault: str) -> Copies:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FAULT", fault)
    return Copies(copiers=2, transaction_rows=100, module="tests.support.faulty_copiers")


@deep
def test_a_copier_that_commits_its_offsets_outside_of_the_transaction_is_found(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = validated(spark, plan_of(broker.bootstrap, "outside", tmp_path, copies=with_fault(monkeypatch, "CommitsOutside")))
    assert not report["holds"]
    assert {kind for kind, count in report["checks"].items() if count} == {"missing"}
    assert report["checks"]["missing"] == ROWS - report["records"]
    assert "missing" in report["verdict"]


@deep
def test_records_of_an_aborted_transaction_that_are_seen_are_named(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = validated(spark, plan_of(broker.bootstrap, "seen", tmp_path, copies=with_fault(monkeypatch, "CommitsWhatItShouldAbort")))
    assert report["checks"]["aborted"] == report["checks"]["missing"] > 0
    named = [example for example in report["examples"] if example["kind"] == "aborted"]
    assert named
    assert all(example["detail"] == "its transaction was aborted" for example in named)


@deep
def test_a_record_that_a_reader_of_all_records_does_not_get_is_named(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = verdict.records_uncommitted

    def without_a_row(*arguments: Any) -> DataFrame:
        return whole(*arguments).where("sequence <> 77")

    monkeypatch.setattr(verdict, "records_uncommitted", without_a_row)
    report = validated(spark, plan_of(broker.bootstrap, "withheld", tmp_path))
    assert {kind: count for kind, count in report["checks"].items() if count} == {"gap": 1, "inconsistent": 1}
    assert ("inconsistent", 77) in [(example["kind"], example["sequence"]) for example in report["examples"]]


@deep
@needs_apache_kafka[1]
def test_apache_kafka_holds_while_copiers_are_killed_stopped_and_paused(spark: SparkSession, tmp_path: Path) -> None:
    config = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    copies = Copies(copiers=3, transaction_rows=50, faults=True)
    with ApacheKafka(tmp_path / "kafka", config=config) as kafka:
        report = validated(spark, replace(plan_of(kafka.bootstrap, "apache", tmp_path, rows=30_000, copies=copies), seed=5))
    check_that_it_holds(report, 30_000)
    assert any("copier" in fault for fault in report["faults"])


@deep
def test_ottla_holds_while_copiers_are_killed_stopped_and_paused(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    copies = Copies(copiers=3, transaction_rows=50, faults=True)
    report = validated(spark, replace(plan_of(broker.bootstrap, "faults", tmp_path, rows=30_000, copies=copies), seed=5))
    check_that_it_holds(report, 30_000)
    assert any("copier" in fault for fault in report["faults"])
