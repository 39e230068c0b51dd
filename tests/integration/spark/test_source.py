"""Spark's Kafka source against Ottla: every way to subscribe, to say where to begin and how much to take, and headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.spark import Record, make_topic, needs_spark, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = needs_spark

EACH = 40
BEGAN_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Topics first-1 (2 partitions) and first-2 (1 partition): 40 records each partition, one per second."""
    with a_broker(tmp_path_factory.mktemp("source") / "broker") as running:
        for topic, partitions in (("first-1", 2), ("first-2", 1), ("other", 1)):
            make_topic(running.bootstrap, topic, partitions=partitions)
            write(running.bootstrap, topic, [records_of(topic, number) for number in range(partitions)])
        yield running


def records_of(topic: str, partition: int) -> list[Record]:
    values = [f"{topic}-{partition}:{n}".encode() for n in range(EACH)]
    return [Record(partition, n, BEGAN_MS + n * 1000, b"k", value) for n, value in enumerate(values)]


def read(spark: SparkSession, broker: BrokerProcess, **options: str) -> DataFrame:
    return spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).options(**options).load()


def counts(frame: DataFrame) -> dict[tuple[str, int], int]:
    return {(row.topic, row.partition): row["count"] for row in frame.groupBy("topic", "partition").count().collect()}


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").orderBy("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return found


def test_topics_by_name(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = read(spark, broker, subscribe="first-1,other")
    assert counts(frame) == {("first-1", 0): EACH, ("first-1", 1): EACH, ("other", 0): EACH}


def test_topics_by_pattern(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = read(spark, broker, subscribePattern="first-.*")
    assert counts(frame) == {("first-1", 0): EACH, ("first-1", 1): EACH, ("first-2", 0): EACH}


def test_partitions_by_assignment(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = read(spark, broker, assign=json.dumps({"first-1": [1], "other": [0]}))
    assert counts(frame) == {("first-1", 1): EACH, ("other", 0): EACH}


def test_offsets_from_and_to(spark: SparkSession, broker: BrokerProcess) -> None:
    starting = json.dumps({"first-1": {"0": 10, "1": -2}})
    ending = json.dumps({"first-1": {"0": 15, "1": -1}})
    frame = read(spark, broker, subscribe="first-1", startingOffsets=starting, endingOffsets=ending)
    assert offsets(frame) == {0: list(range(10, 15)), 1: list(range(EACH))}


def test_offsets_by_the_time_of_each_partition(spark: SparkSession, broker: BrokerProcess) -> None:
    starting = json.dumps({"first-1": {"0": BEGAN_MS + 5_000, "1": BEGAN_MS + 9_001}})
    ending = json.dumps({"first-1": {"0": BEGAN_MS + 8_000, "1": BEGAN_MS + 12_000}})
    frame = read(spark, broker, subscribe="first-1", startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending)
    assert offsets(frame) == {0: [5, 6, 7], 1: [10, 11]}


def test_offsets_by_one_time_for_all(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = read(spark, broker, subscribe="first-1", startingTimestamp=str(BEGAN_MS + 38_000))
    assert offsets(frame) == {0: [38, 39], 1: [38, 39]}


def test_a_time_that_no_record_has_reached_means_the_end_or_an_error(spark: SparkSession, broker: BrokerProcess) -> None:
    late = {"subscribe": "first-1", "startingTimestamp": str(BEGAN_MS + 99_000)}
    with pytest.raises(Exception, match="No offset matched"):
        read(spark, broker, **late).count()
    assert read(spark, broker, **late, startingOffsetsByTimestampStrategy="latest").count() == 0


def test_more_spark_partitions_than_the_topic_has(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = read(spark, broker, subscribe="first-1", minPartitions="6")
    assert frame.rdd.getNumPartitions() >= 6
    assert offsets(frame) == {0: list(range(EACH)), 1: list(range(EACH))}


def test_a_stream_takes_no_more_than_it_may_at_once(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    options = {"subscribe": "first-1", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).options(**options).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    taken = [progress["numInputRows"] for progress in query.recentProgress]
    assert [rows for rows in taken if rows] == [20, 20, 20, 20]


def test_headers_go_both_ways(spark: SparkSession, broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap, "headed")
    rows = spark.range(5).selectExpr(
        "cast(id as string) AS key",
        "cast(id as string) AS value",
        "array(struct('n' AS key, cast(cast(id as string) as binary) AS value), struct('none' AS key, null AS value)) AS headers",
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "headed").save()
    for row in read(spark, broker, subscribe="headed", includeHeaders="true").collect():
        assert [(one.key, one.value) for one in row.headers] == [("n", row.value), ("none", None)]


def test_records_of_aborted_transactions_are_hidden_from_who_asks_for_that(spark: SparkSession, broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap, "transacted")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "transacted", "log_level": 0})
    producer.init_transactions(30)
    for ending in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for number in range(20):
            producer.produce("transacted", f"{ending} {number}", partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if ending == "commit" else producer.abort_transaction)(30)
    hidden = read(spark, broker, subscribe="transacted", **{"kafka.isolation.level": "read_committed"})
    assert offsets(hidden)[0] == [*range(20), *range(42, 62)]  # a marker behind each transaction
    assert {bytes(row.value).split()[0] for row in hidden.collect()} == {b"commit"}
    assert offsets(read(spark, broker, subscribe="transacted"))[0] == [*range(20), *range(21, 41), *range(42, 62)]


def test_the_sink_takes_topic_and_partition_from_the_row(spark: SparkSession, broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap, "chosen", partitions=3)
    rows = spark.range(30).selectExpr("'chosen' AS topic", "cast(id % 3 as int) AS partition", "cast(id as string) AS value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).save()
    frame = read(spark, broker, subscribe="chosen")
    assert counts(frame) == {("chosen", number): 10 for number in range(3)}
    assert frame.where("cast(cast(value as string) as int) % 3 != partition").count() == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(spark: SparkSession, broker: BrokerProcess, codec: str) -> None:
    make_topic(broker.bootstrap, codec)
    rows = spark.range(1000).selectExpr("repeat(cast(id as string), 20) AS value")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.compression.type": codec, "topic": codec}
    rows.write.format("kafka").options(**options).save()
    assert read(spark, broker, subscribe=codec).selectExpr("cast(value as string)").distinct().count() == 1000
