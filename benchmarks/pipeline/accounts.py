"""Which numbers of a long run are missing or there more than once, without sorting them all.

Numbers are counted in buckets, each with the exclusive or of their hashes: a missing number shows in that sum, since nothing but the number
itself cancels it out, and when none is missing an additional one shows in the count. Only buckets that differ are looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

BUCKET = 1 << 16


@dataclass(frozen=True, slots=True)
class Difference:
    """What is wrong: both have the columns `group` and `number`; `repeated` has `times`, too. None when everything is there once."""

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
