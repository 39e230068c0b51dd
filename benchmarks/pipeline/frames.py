"""Frames of what the driver knows, and of what lies in a place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

_OF_A_PATTERN = re.compile(r"[\[\]{}*?\\]")


def frame_of(spark: SparkSession, rows: Iterable[Sequence[object]], schema: str) -> DataFrame:
    """A frame with these rows, some thousands at most; `schema` is `name type, name type` with plain types.

    createDataFrame() would need a Python of this version wherever an executor is.
    """
    names = [column.split()[0] for column in schema.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return spark.range(1).select(fn.inline(fn.from_json(fn.lit(text), f"array<struct<{schema}>>")))


def place(path: str) -> str:
    """What a batch reader must be told to read there and nowhere else: it takes a path for a pattern."""
    return _OF_A_PATTERN.sub(r"\\\g<0>", path)
