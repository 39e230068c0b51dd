"""Measures the received records: per partition, per slice of time, in total. Results are frames of at most a few hundred rows."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as fn

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_ACCURACY = 10_000
_MOST_SLICES = 600
_MS = 1000
_SKETCH = "percentiles"


@dataclass(frozen=True, slots=True)
class Measurements:
    """`totals` is one row; frames have the names of their Parquet folders. Time is counted from `begin_ms`, in slices of `slice_s`."""

    totals: Row
    begin_ms: int
    slice_s: int
    frames: dict[str, DataFrame]


def measure(received: DataFrame) -> Measurements | None:
    """The measurements of all received records; None when there was no record."""
    latency = (fn.col("arrived_ms") - fn.col("event_ms")).cast("double")
    timed = received.withColumn("latency_ms", latency)
    totals = _named(
        timed.agg(
            fn.count("*").alias("records"),
            fn.sum("bytes").alias("bytes"),
            fn.min("timestamp_ms").alias("first_written_ms"),
            fn.max("timestamp_ms").alias("last_written_ms"),
            fn.min("arrived_ms").alias("first_read_ms"),
            fn.max("arrived_ms").alias("last_read_ms"),
            *_percentiles(),
        )
    ).first()
    if totals is None or not totals.records:
        return None
    begin = min(totals.first_written_ms, totals.first_read_ms)
    seconds = (max(totals.last_written_ms, totals.last_read_ms) - begin) // _MS + 1
    slice_s = max(1, -(-seconds // _MOST_SLICES))

    def at(column: str) -> Column:
        slices: Column = fn.floor((fn.col(column) - begin) / (slice_s * _MS)) * slice_s
        return slices.alias("second")

    def rates(column: str, name: str) -> DataFrame:
        return timed.groupBy(at(column)).agg(
            (fn.count("*") / slice_s).alias(f"{name}_per_s"), (fn.sum("bytes") / slice_s).alias(f"{name}_bytes_per_s")
        )

    throughput = received.sparkSession.range(0, seconds, int(slice_s)).withColumnRenamed("id", "second")  # also when nothing moved
    for column, name in (("timestamp_ms", "written"), ("arrived_ms", "read")):
        throughput = throughput.join(rates(column, name), "second", "left")
    throughput = throughput.na.fill(0.0)
    partitions = timed.groupBy("partition").agg(
        fn.count("*").alias("records"),
        fn.sum("bytes").alias("bytes"),
        fn.min("offset").alias("first_offset"),
        fn.max("offset").alias("last_offset"),
        fn.expr(f"percentile_approx(latency_ms, 0.99, {_ACCURACY})").alias("p99"),
    )
    known = timed.where(fn.col("latency_ms").isNotNull())
    over_time = _named(known.groupBy(at("timestamp_ms")).agg(fn.count("*").alias("records"), *_percentiles()))
    frames = {"throughput": throughput, "latency": over_time, "partitions": partitions}
    return Measurements(totals, begin, int(slice_s), {name: frame.orderBy(frame.columns[0]) for name, frame in frames.items()})


def _percentiles() -> list[Column]:
    """One sketch for all of them, taken apart by `_named`."""
    shares = ", ".join(str(share) for share in PERCENTILES.values())
    return [fn.expr(f"percentile_approx(latency_ms, array({shares}), {_ACCURACY})").alias(_SKETCH), fn.max("latency_ms").alias("max")]


def _named(frame: DataFrame) -> DataFrame:
    return frame.select("*", *(fn.col(_SKETCH)[at].alias(name) for at, name in enumerate(PERCENTILES))).drop(_SKETCH)
