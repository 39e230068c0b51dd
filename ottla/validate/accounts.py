"""Finds the numbers of a long run that are missing or repeated, without sorting all of them.

Numbers are counted in buckets, each with the exclusive or of their hashes. A missing number changes that value, since only the number
itself cancels it out. When none is missing, an additional number changes the count. Only buckets that differ are checked number by number.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

BUCKET = 1 << 16


@dataclass(frozen=True, slots=True)
class Difference:
    """Missing and repeated numbers, both with the columns `group` and `number`; `repeated` also has `times`. None for no such numbers."""

    missing: DataFrame
    repeated: DataFrame


def difference(actual: DataFrame, expected: DataFrame) -> Difference | None:
    """Compare the numbers of two frames with columns `group` and `number`. One small job when they agree."""
    bad = _buckets(expected, "wanted").join(_buckets(actual, "found"), ["group", "bucket"], "full")
    bad = bad.where(~fn.col("wanted").eqNullSafe(fn.col("found"))).select("group", "bucket").cache()
    if bad.isEmpty():
        bad.unpersist()
        return None
    bucket = _bucket().alias("bucket")
    wanted = expected.select("group", "number", bucket).join(fn.broadcast(bad), ["group", "bucket"], "left_semi")
    found = actual.select("group", "number", bucket).join(fn.broadcast(bad), ["group", "bucket"], "left_semi")
    times = found.groupBy("group", "number").agg(fn.count("*").alias("times"))
    return Difference(wanted.join(times, ["group", "number"], "left_anti").select("group", "number"), times.where(fn.col("times") > 1))


def _buckets(numbers: DataFrame, name: str) -> DataFrame:
    summed = fn.struct(fn.count("*"), fn.bit_xor(fn.xxhash64("number"))).alias(name)
    return numbers.groupBy("group", _bucket().alias("bucket")).agg(summed)


def _bucket() -> Column:
    return fn.floor(fn.col("number") / BUCKET)
