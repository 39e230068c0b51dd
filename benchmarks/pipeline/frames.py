"""Frames of what the driver knows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def frame_of(spark: SparkSession, rows: Iterable[Sequence[object]], schema: str) -> DataFrame:
    """A frame with these rows, some thousands at most; `schema` is `name type, name type` with plain types.

    createDataFrame() would need a Python of this version wherever an executor is.
    """
    names = [column.split()[0] for column in schema.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return spark.range(1).select(fn.inline(fn.from_json(fn.lit(text), f"array<struct<{schema}>>")))
