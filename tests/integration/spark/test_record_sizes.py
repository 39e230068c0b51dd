"""`ottla validate` with records that are too large: told before anything is written where it can be known, and never taken for written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.cluster import Cluster
from ottla.client.topic_admin import all_topics
from ottla.validate import session
from ottla.validate.plan import DidNotFinish, Plan, Unusable
from ottla.validate.run import run
from ottla.validate.topic import check
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.spark import deep, make_topic, needs_spark, validated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("sizes") / "broker") as running:
        yield running


def test_a_record_that_the_broker_refuses_ends_the_run_without_a_report(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_topic(broker.bootstrap, "narrow", partitions=4, max_message_bytes="300")
    monkeypatch.setattr(session, "open_session", lambda *_: spark)
    monkeypatch.setattr(session, "close_session", lambda _: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # With one record in a batch Java's producer gives up at once; with more see below.
    plan = Plan(broker.bootstrap, "narrow", 100, tmp_path / "report", record_bytes=700, codec="gzip", producer={"batch.size": "1"})
    assert run(plan) == 1
    said = capfd.readouterr()
    assert "ottla: generate failed: " in said.err
    assert "RecordTooLarge" in said.err
    assert "Traceback" not in said.err
    assert not said.out
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("ottla-validate-")] == []


def test_a_row_that_is_larger_than_the_topic_takes_is_told_before_anything_is_written(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "big.csv"
    file.write_text(f"key,value\nk,v\nkk,{'v' * 2_000_000}\n")
    with pytest.raises(Unusable) as reason:
        validated(spark, Plan(broker.bootstrap, "too-small", 1, tmp_path / "report", input=file))
    assert str(reason.value) == f"{file}: its largest row takes 2,000,128 bytes in topic too-small, whose max.message.bytes is 1,048,588"
    with Cluster(broker.bootstrap) as cluster:
        assert "too-small" not in {topic.name for topic in all_topics(cluster)}


def test_records_that_are_larger_than_the_topic_takes_are_told_before_spark_starts(broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, "smaller", partitions=4, max_message_bytes="300")
    plan = Plan(broker.bootstrap, "smaller", 100, tmp_path / "report", record_bytes=400)
    with pytest.raises(
        Unusable, match=r"^a record of --record-bytes 400 takes 476 bytes in topic smaller, whose max\.message\.bytes is 300$"
    ):
        check(plan)
    with pytest.raises(Unusable, match=r"in topic new, whose max\.message\.bytes is 1,048,588$"):
        check(replace(plan, topic="new", record_bytes=2_000_000))
    check(replace(plan, codec="gzip"))  # nobody knows before how small they become


@deep
def test_a_row_that_the_topic_takes_to_the_byte_comes_through(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """The producer's own max.request.size would be half of that."""
    file = tmp_path / "big.csv"
    file.write_text(f"key,value\nk,v\nkk,{'v' * 2_000_000}\n")
    make_topic(broker.bootstrap, "exact", partitions=4, max_message_bytes="2000128")
    make_topic(broker.bootstrap, "one-less", partitions=4, max_message_bytes="2000127")
    plan = Plan(broker.bootstrap, "exact", 1, tmp_path / "report", input=file)
    assert validated(spark, plan)["holds"]
    with pytest.raises(Unusable, match="takes 2,000,128 bytes in topic one-less"):
        validated(spark, replace(plan, topic="one-less", report=tmp_path / "other"))


@deep
def test_records_that_the_producer_gave_up_never_hold(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """Java's producer splits a batch that is too large for the topic at its own batch.size (KAFKA-8350).

    So a batch that was below that comes back as it is, until delivery.timeout.ms (two minutes unless said otherwise) is over. Its flush()
    may return meanwhile (KAFKA-19479): then Spark believes that all is written. Against Apache Kafka it does the same.
    """
    make_topic(broker.bootstrap, "split", partitions=4, max_message_bytes="300")
    hurried = {"delivery.timeout.ms": "4000", "request.timeout.ms": "2000"}
    plan = Plan(broker.bootstrap, "split", 100, tmp_path / "report", record_bytes=700, codec="gzip", producer=hurried)
    missing = -1
    with suppress(DidNotFinish):
        missing = validated(spark, plan)["checks"]["missing"]
    assert missing in (-1, 100)
