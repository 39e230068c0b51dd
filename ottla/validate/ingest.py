"""Reads the topic into Parquet with Structured Streaming and a checkpoint, while rows are written: the stage `ingest`.

`stream` is one query of micro-batches that follow each other without a pause. `batch` is a sequence of available-now queries, each of which
begins at the checkpoint of the previous one. Parquet gets the header and the place of each record, not its payload.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from ottla.validate.frames import frame_of, place
from ottla.validate.plan import DidNotFinish, Plan
from ottla.validate.reasons import innermost
from ottla.validate.records import NOW_MS, parsed
from ottla.validate.topic import Offsets, Topic

POOL = "ingest"
_LOOK_S = 0.2
_LOG_APPEND_TIME = 1
_LEAST_PER_BATCH = 1_000_000  # a reader that fell behind still shows how far it is before --stall is over
_BATCHES = 20


_SCHEMA = (
    "partition int, offset bigint, key binary, timestamp_ms bigint, log_append_time boolean, arrived_ms bigint, bytes int, "
    "run string, stream int, sequence bigint, event_ms bigint, intact boolean"
)


class Ingest:
    """A query that can be restarted. `rows` is the number of records read so far, `batches` describes each micro-batch."""

    def __init__(self, spark: SparkSession, plan: Plan, topic: Topic, work: str) -> None:
        self._spark = spark
        self._plan = plan
        self._topic = topic
        self.data = f"{work}/received"
        self._checkpoint = f"{work}/checkpoint"
        self._query: StreamingQuery | None = None
        self._reached: Offsets = dict(topic.first)
        self._seen: tuple[object, object] | None = None
        self.batches: dict[int, dict[str, Any]] = {}
        self.restarts = 0

    @property
    def rows(self) -> int:
        """Records read by finished micro-batches."""
        return sum(batch["rows"] for batch in self.batches.values())

    def received(self) -> DataFrame:
        """The records that were read, once the query has ended."""
        if self._reached == self._topic.first:
            return frame_of(self._spark, [], _SCHEMA)
        return self._spark.read.schema(_SCHEMA).parquet(self.data)

    def start(self) -> None:
        """Begin, or begin again at the checkpoint."""
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        writer = records_read(self._spark, self._plan, self._topic).writeStream.format("parquet")
        writer = writer.option("path", self.data).option("checkpointLocation", self._checkpoint)
        writer = writer.trigger(availableNow=True) if self._plan.mode == "batch" else writer.trigger(processingTime="0 seconds")
        self._query = writer.start()

    def run_until(self, wanted: Callable[[], Offsets | None], say: Callable[[], None], *, forgives: bool) -> None:
        """Read until all records below the offsets of `wanted()`, once it returns offsets, have been read.

        With `forgives` a query that failed begins again at its checkpoint.
        Raises DidNotFinish when nothing comes for too long, or the query fails.
        """
        assert self._query is not None
        moved, reached = time.monotonic(), self._reached
        while True:
            running = self._query.isActive
            self._look()
            goal = wanted()
            if goal is not None and all(self._reached.get(partition, 0) >= end for partition, end in goal.items()):
                break
            if self._reached != reached or goal is None:
                moved, reached = time.monotonic(), self._reached
            if time.monotonic() - moved > self._plan.stall_s:
                raise DidNotFinish(
                    f"ingest stands still since {self._plan.stall_s:.0f} s at {self.rows:,} records: {self._behind(goal or {})}"
                )
            if not running:
                self._go_on(forgives=forgives)
            say()
            time.sleep(_LOOK_S)
        self.stop()

    def stop(self) -> None:
        """End the query, if it runs."""
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def _go_on(self, *, forgives: bool) -> None:
        assert self._query is not None
        error = self._query.exception()
        if error is not None and not forgives:
            raise DidNotFinish(f"ingest failed: {innermost(error)}") from error
        self.restarts += error is not None
        self.start()

    def _look(self) -> None:
        """Take the query's reports about its micro-batches.

        PySpark makes dozens of calls into the JVM for each report, so all reports that Spark keeps are read only when one was missed.
        """
        assert self._query is not None
        last = self._query.lastProgress
        if last is None:
            return
        newest = _as_mapping(last)
        if (newest["batchId"], newest["timestamp"]) == self._seen:
            return
        self._seen = newest["batchId"], newest["timestamp"]
        is_next = newest["batchId"] <= max(self.batches, default=-1) + 1
        for seen in [newest] if is_next else [*map(_as_mapping, self._query.recentProgress), newest]:
            for source in seen["sources"]:
                self._reached = self._reached | _offsets_in(source.get("endOffset"), self._topic.name)
            if seen["numInputRows"]:
                self.batches[seen["batchId"]] = {
                    "batch": seen["batchId"],
                    "began": seen["timestamp"],
                    "rows": seen["numInputRows"],
                    "rows_per_s": seen.get("processedRowsPerSecond", 0.0),
                    "duration_ms": seen.get("durationMs", {}).get("triggerExecution", 0),
                }

    def _behind(self, goal: Mapping[int, int]) -> str:
        late = [
            f"{self._topic.name}-{number} at {self._reached.get(number, 0)} of {end}"
            for number, end in goal.items()
            if self._reached.get(number, 0) < end
        ]
        return ", ".join(late[:5])


def records_read(spark: SparkSession, plan: Plan, topic: Topic) -> DataFrame:
    """The stream of the header and place of each record."""
    options = _source_options(plan, topic)
    if plan.copies is not None:
        options["kafka.isolation.level"] = "read_committed"
    most = plan.max_offsets_per_trigger or max(_LEAST_PER_BATCH, plan.rows // _BATCHES)
    options["maxOffsetsPerTrigger"] = str(most)
    return _said(spark.readStream.format("kafka").options(**options).load())


def records_uncommitted(spark: SparkSession, plan: Plan, topic: Topic, ends: Offsets, work: str) -> DataFrame:
    """Header and place of each record, read at once, with the records of aborted transactions."""
    options = _source_options(plan, topic) | {"endingOffsets": _at(topic, ends), "kafka.isolation.level": "read_uncommitted"}
    folder = f"{work}/uncommitted"
    _said(spark.read.format("kafka").options(**options).load()).write.parquet(folder)
    return spark.read.schema(_SCHEMA).parquet(place(folder))


def _source_options(plan: Plan, topic: Topic) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": plan.bootstrap,
        "subscribe": topic.name,
        "startingOffsets": _at(topic, topic.first),
        "failOnDataLoss": "true",
        **{f"kafka.{name}": value for name, value in plan.java_security.items()},
    }


def _at(topic: Topic, offsets: Offsets) -> str:
    return json.dumps({topic.name: {str(number): offset for number, offset in offsets.items()}})


def _said(read: DataFrame) -> DataFrame:
    said = parsed(fn.col("key"), fn.col("value"))
    return read.select(
        "partition",
        "offset",
        "key",
        fn.unix_millis("timestamp").alias("timestamp_ms"),
        (fn.col("timestampType") == _LOG_APPEND_TIME).alias("log_append_time"),
        fn.expr(NOW_MS).cast("bigint").alias("arrived_ms"),
        (fn.coalesce(fn.length("key"), fn.lit(0)) + fn.coalesce(fn.length("value"), fn.lit(0))).alias("bytes"),
        *(column.alias(name) for name, column in said.items()),
    )


def _as_mapping(progress: Any) -> Mapping[str, Any]:
    """A progress report of Spark 3.5, or of 4."""
    return progress if isinstance(progress, dict) else json.loads(progress.json)


def _offsets_in(said: object, topic: str) -> Offsets:
    """The end offsets of a progress report: an object, or its text, by the version of Spark."""
    found = json.loads(said) if isinstance(said, str) else said
    return {int(number): offset for number, offset in (found or {}).get(topic, {}).items()} if isinstance(found, dict) else {}
