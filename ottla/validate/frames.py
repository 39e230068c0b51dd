"""Makes data frames from rows of the driver, and paths for readers of stored data."""

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
    """The argument with which a batch reader reads exactly this path; the reader interprets a path as a pattern."""
    return _OF_A_PATTERN.sub(r"\\\g<0>", path)
