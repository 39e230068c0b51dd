"""Writes rows as records with Spark's Kafka sink: the first stage.

The sink writes at least once, so tasks are not retried (session.py), and producers keep the order of their retries: with acks=all they are
idempotent, otherwise they have one request in flight.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from ottla.validate.plan import Plan, Unusable
from ottla.validate.reasons import innermost
from ottla.validate.records import NOW_MS, value_of
from ottla.validate.sizes import producer_limits
from ottla.validate.source import Source

POOL = "generate"
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"
_CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException: "


def records_of(source: Source, plan: Plan) -> DataFrame:
    """Columns `key` and `value` as the Kafka sink takes them; the event time is when the row is made."""
    timed = source.rows.withColumn("event_ms", fn.expr(NOW_MS))
    value = value_of(plan.run, fn.col("stream"), fn.col("sequence"), fn.col("event_ms"), fn.col("key"), fn.col("payload"))
    return timed.select("key", value.alias("value"))


def generate(source: Source, plan: Plan) -> None:
    """Write all rows. Raises what Spark raises when a record is not acknowledged."""
    source.rows.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    options = {f"kafka.{name}": value for name, value in producer_of(plan).items()}
    records_of(source, plan).write.format("kafka").options(**options, topic=plan.topic).save()


def producer_of(plan: Plan) -> dict[str, str]:
    """The configuration of the producers."""
    chosen = {"bootstrap.servers": plan.bootstrap, "acks": plan.acks, "compression.type": plan.codec, "linger.ms": "5"}
    chosen |= {**producer_limits(plan), **plan.java_security, **plan.producer}
    if plan.acks not in ("all", "-1"):
        chosen.setdefault("max.in.flight.requests.per.connection", "1")
    return chosen


def check_producer(spark: SparkSession, plan: Plan) -> None:
    """Check early that Java's producer accepts its configuration. Raises Unusable."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    settings = jvm.java.util.HashMap()
    for name, value in {**producer_of(plan), "key.serializer": _BYTES, "value.serializer": _BYTES}.items():
        settings.put(name, value)
    try:
        jvm.org.apache.kafka.clients.producer.KafkaProducer(settings).close()
    except Py4JJavaError as error:
        raise Unusable(f"--producer: {innermost(error).removeprefix(_CONFIG_EXCEPTION)}") from None
