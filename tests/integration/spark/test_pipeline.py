"""The data pipeline on a good topic, and on topics with one thing wrong, which it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from benchmarks.pipeline.plan import Plan
from benchmarks.pipeline.verify import KINDS
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.spark import Change, Partitions, make_topic, needs_spark, records_in, validated, verify_only, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_spark

ROWS = 2_000
PARTITIONS = 3


class Written(NamedTuple):
    """A broker with the topic of a run, the run's plan and report."""

    broker: BrokerProcess
    plan: Plan
    report: dict[str, Any]
    records: Partitions


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    folder = tmp_path_factory.mktemp("pipeline")
    with a_broker(folder / "broker") as broker:
        plan = Plan(broker.bootstrap, "rows", ROWS, folder / "report", partitions=PARTITIONS, master="local[2]", keys=50)
        report = validated(spark, plan)
        yield Written(broker, plan, report, records_in(broker.bootstrap, "rows", PARTITIONS))


def test_what_an_ottla_broker_keeps_holds(written: Written) -> None:
    report = written.report
    assert report["holds"], report["examples"]
    assert report["checks"] == dict.fromkeys(KINDS, 0)
    assert report["records"] == ROWS == sum(map(len, written.records))
    assert sum(row["records"] for row in report["measurements"]["partitions"]) == ROWS
    assert {len(record.value) for partition in written.records for record in partition} == {100}


def test_the_report_is_a_page_that_needs_nothing_else(written: Written) -> None:
    page = (written.plan.report / "report.html").read_text(encoding="utf-8")
    assert "Everything holds: 2,000 rows" in page
    assert page.count("<svg") == 3
    assert not re.findall(r"(?:src|href)=[\"']http", page)
    report = json.loads((written.plan.report / "report.json").read_text(encoding="utf-8"))
    assert report["holds"] is True
    for frame in ("findings", "throughput", "latency", "partitions", "batches"):
        assert list((written.plan.report / frame).glob("*.parquet")), frame
    assert not (written.plan.report / "work").exists()


def dropped(partitions: Partitions) -> dict[str, Any]:
    lost = partitions[1].pop(100)
    return {"kind": "missing", "sequence": lost.sequence, "partition": 1, "key": lost.key.decode()}


def duplicated(partitions: Partitions) -> dict[str, Any]:
    twice = partitions[0][50]
    partitions[0].append(twice)
    return {"kind": "duplicated", "sequence": twice.sequence, "partition": 0, "offset": len(partitions[0]) - 1}


def swapped(partitions: Partitions) -> dict[str, Any]:
    at = next(at for at in range(10, 500) if partitions[2][at].stream == partitions[2][at + 1].stream)
    partitions[2][at : at + 2] = reversed(partitions[2][at : at + 2])
    return {"kind": "out of order", "sequence": partitions[2][at + 1].sequence, "partition": 2, "offset": at + 1}


def swapped_with_the_same_key(partitions: Partitions) -> dict[str, Any]:
    first, second = next(
        (i, j)
        for i, one in enumerate(partitions[2])
        for j, other in enumerate(partitions[2])
        if i < j and (one.stream, one.key) == (other.stream, other.key)
    )
    partitions[2][first], partitions[2][second] = partitions[2][second], partitions[2][first]
    return {"kind": "key out of order", "sequence": partitions[2][second].sequence, "partition": 2, "offset": second}


def corrupted(partitions: Partitions) -> dict[str, Any]:
    record = partitions[1][33]
    partitions[1][33] = record._replace(value=record.value[:-1] + bytes([record.value[-1] ^ 1]))
    return {"kind": "corrupted", "sequence": record.sequence, "partition": 1, "offset": 33}


def on_a_wrong_partition(partitions: Partitions) -> dict[str, Any]:
    record = partitions[0].pop()
    earlier = [i for i, other in enumerate(partitions[1]) if other.stream == record.stream and other.sequence < record.sequence]
    at = max(earlier, default=-1) + 1
    partitions[1].insert(at, record)
    return {"kind": "misplaced", "sequence": record.sequence, "partition": 1, "offset": at}


def of_somebody_else(partitions: Partitions) -> dict[str, Any]:
    partitions[2].append(partitions[2][0]._replace(value=b"what is this?"))
    return {"kind": "corrupted", "sequence": None, "partition": 2, "offset": len(partitions[2]) - 1}


@pytest.mark.parametrize(
    "change", [dropped, duplicated, swapped, swapped_with_the_same_key, corrupted, on_a_wrong_partition, of_somebody_else]
)
def test_one_record_is_named_with_its_sequence_and_offset(spark: SparkSession, written: Written, tmp_path: Path, change: Change) -> None:
    partitions = [list(records) for records in written.records]
    expected = change(partitions)
    make_topic(written.broker.bootstrap, change.__name__, partitions=PARTITIONS)
    write(written.broker.bootstrap, change.__name__, partitions)

    report = validated(spark, verify_only(written.plan, change.__name__, tmp_path / "report"))

    assert not report["holds"]
    named = [example for example in report["examples"] if expected.items() <= example.items()]
    assert len(named) == 1, report["examples"]
    kinds = {example["kind"] for example in report["examples"]}
    assert kinds <= {expected["kind"], "out of order", "key out of order", "time went back"}
    if change in (dropped, duplicated, corrupted, on_a_wrong_partition, of_somebody_else):
        assert report["examples"] == named
    assert expected["kind"] in report["verdict"]
    assert "It does not hold" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_a_dropped_record_is_said_to_belong_behind_the_offset_before_it(spark: SparkSession, written: Written, tmp_path: Path) -> None:
    partitions = [list(records) for records in written.records]
    at = next(at for at in range(100, 500) if partitions[0][at].stream == partitions[0][at - 1].stream)
    lost = partitions[0].pop(at)
    make_topic(written.broker.bootstrap, "behind", partitions=PARTITIONS)
    write(written.broker.bootstrap, "behind", partitions)
    (found,) = validated(spark, verify_only(written.plan, "behind", tmp_path / "report"))["examples"]
    before = max(i for i, record in enumerate(partitions[0]) if record.stream == lost.stream and record.sequence < lost.sequence)
    assert found["detail"].endswith(f"behind offset {before}")
