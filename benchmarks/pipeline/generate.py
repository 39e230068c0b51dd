"""The first stage: rows become records, written with Spark's Kafka sink.

The sink writes at least once, so tasks are not tried again (session.py) and producers keep the order of what they try again: with acks=all
they are idempotent, otherwise they have one request in flight.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from benchmarks.pipeline.plan import Plan
from benchmarks.pipeline.records import NOW_MS, value_of
from benchmarks.pipeline.source import Source

POOL = "generate"


def records_of(source: Source, plan: Plan) -> DataFrame:
    """Columns `key` and `value` as the Kafka sink takes them; the event time is when the row is made."""
    timed = source.rows.withColumn("event_ms", fn.expr(NOW_MS))
    value = value_of(plan.run, fn.col("stream"), fn.col("sequence"), fn.col("event_ms"), fn.col("key"), fn.col("payload"))
    return timed.select("key", value.alias("value"))


def generate(source: Source, plan: Plan) -> None:
    """Write all rows. Raises what Spark raises when a record is not acknowledged."""
    source.rows.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    options = {
        "kafka.bootstrap.servers": plan.bootstrap,
        "kafka.acks": plan.acks,
        "kafka.compression.type": plan.codec,
        "kafka.linger.ms": "5",
        "topic": plan.topic,
        **{f"kafka.{name}": value for name, value in plan.producer.items()},
    }
    if plan.acks not in ("all", "-1"):
        options.setdefault("kafka.max.in.flight.requests.per.connection", "1")
    records_of(source, plan).write.format("kafka").options(**options).save()
