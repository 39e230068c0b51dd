"""Provides the rows of a run: generated from the seed, or read from the user's file.

Their columns are stream, sequence, key and payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import AtomicType, BinaryType, StringType

from ottla.validate.frames import place
from ottla.validate.plan import MAX_ROWS, MAX_STREAMS, Plan, Unusable, check_input
from ottla.validate.reasons import innermost
from ottla.validate.records import HEADER_BYTES, payload_of

_ROW_BITS = 33  # of monotonically_increasing_id(): the rest is the number of the Spark partition
_FINE = 1 << 31
_SHOWN = 30  # bytes before and after one that is no UTF-8
_TWICE = "{file}: has more than one column of the name {names}; give each a name of its own, whose letters differ by more than their case"
_SKEW = 4  # with the fourth power, half of the rows go to the first sixteenth of the keys


@dataclass(frozen=True, slots=True)
class Source:
    """The rows, their number, and the sizes of key and value of the largest one."""

    rows: DataFrame
    count: int
    key_bytes: int
    value_bytes: int


def source_of(spark: SparkSession, plan: Plan) -> Source:
    """The rows that the plan asks for. Raises Unusable."""
    return _read(spark, plan) if plan.input is not None else _generated(spark, plan)


def _generated(spark: SparkSession, plan: Plan) -> Source:
    rows, streams = plan.rows, plan.streams
    uniform = fn.pmod(fn.xxhash64(fn.col("sequence"), fn.lit(plan.seed)), fn.lit(_FINE)) / _FINE
    skewed = uniform
    for _ in range(_SKEW - 1):
        skewed = skewed * uniform
    part = {"uniform": uniform, "skewed": skewed}.get(plan.key_kind, fn.when(fn.col("sequence") % 2 == 0, uniform).otherwise(skewed))
    kind = {"uniform": fn.lit("u"), "skewed": fn.lit("s")}.get(plan.key_kind, fn.when(fn.col("sequence") % 2 == 0, "u").otherwise("s"))
    made = spark.range(0, rows, 1, streams).select(
        fn.spark_partition_id().alias("stream"),
        fn.col("id").alias("sequence"),
    )
    return Source(
        made.select(
            "stream",
            "sequence",
            fn.concat_ws("-", kind, fn.floor(part * plan.keys).cast("string")).cast("binary").alias("key"),
            payload_of(fn.col("sequence"), plan.seed, plan.record_bytes - HEADER_BYTES).cast("binary").alias("payload"),
        ),
        rows,
        plan.longest_key,
        plan.record_bytes,
    )


def _read(spark: SparkSession, plan: Plan) -> Source:
    assert plan.input is not None
    table = _table(spark, plan)
    key, payload = _key(table, plan), _payload(table, plan)
    try:
        # Finds unreadable rows now, too, and not when half of the rows are written.
        key_bytes, payload_bytes = (fn.coalesce(fn.length(part), fn.lit(0)) for part in (key, payload))
        largest = fn.max(fn.struct(key_bytes + payload_bytes, key_bytes, payload_bytes))
        read = table.groupBy(fn.spark_partition_id()).agg(fn.count("*"), largest).collect()
        sizes = {row[0]: row[1] for row in read}
    except (PySparkException, Py4JError) as error:
        raise Unusable(f"{plan.input}: cannot be read: {innermost(error)}") from None
    if not 0 < sum(sizes.values()) <= MAX_ROWS or max(sizes) > MAX_STREAMS:
        raise Unusable(f"{plan.input}: has {sum(sizes.values())} rows; there must be one at least, and {MAX_ROWS} at most")
    starts, at = [], 0
    for stream in range(max(sizes) + 1):
        starts.append(at)
        at += sizes.get(stream, 0)
    row_in_stream = fn.monotonically_increasing_id().bitwiseAND(fn.lit((1 << _ROW_BITS) - 1))
    first = fn.element_at(fn.array(*(fn.lit(start).cast("bigint") for start in starts)), fn.spark_partition_id() + 1)
    rows = table.select(
        fn.spark_partition_id().alias("stream"),
        (first + row_in_stream).alias("sequence"),
        key.alias("key"),
        fn.coalesce(payload, fn.lit(b"")).alias("payload"),
    )
    _, largest_key, largest_payload = max(tuple(row[2]) for row in read)
    return Source(rows, at, largest_key, HEADER_BYTES + largest_payload)


def _table(spark: SparkSession, plan: Plan) -> DataFrame:
    assert plan.input is not None
    check_input(plan)
    path = place(str(plan.input.absolute()))
    try:
        if plan.input.suffix.lower() == ".csv":
            lines = spark.read.text(path)
            _check_text(lines, plan.input)
            _check_quotes(lines, plan.input)
            # A quote in quotes is written twice (RFC 4180), and a backslash is no more than that.
            heading = spark.read.csv(path, header=False, inferSchema=False, escape='"').first()
            _check_names(heading or (), plan.input, str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true")
            table = spark.read.csv(path, header=True, inferSchema=False, mode="FAILFAST", escape='"', enforceSchema=not plan.input.is_dir())
        else:
            table = spark.read.parquet(path)
    except (PySparkException, Py4JError) as error:
        reason = innermost(error)
        twice = re.search(r"\[COLUMN_ALREADY_EXISTS\] The column (`.+`) already exists", reason)
        if twice is not None:
            raise Unusable(_TWICE.format(file=plan.input, names=twice.group(1).strip("`"))) from None
        raise Unusable(f"{plan.input}: is neither Parquet nor, by its name, CSV: {reason}") from None
    if not table.columns:
        raise Unusable(f"{plan.input}: has no columns")
    return table


def _check_names(names: Iterable[str | None], file: Path, is_case_sensitive: bool) -> None:
    """Refuse equal names: Spark silently renames equal columns of a CSV file. Raises Unusable."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            continue  # a column without a name has one by its place
        same = name if is_case_sensitive else name.lower()
        if same in seen:
            both = name if seen[same] == name else f"{seen[same]} and {name}"
            raise Unusable(_TWICE.format(file=file, names=both))
        seen[same] = name


def _check_text(lines: DataFrame, file: Path) -> None:
    """Refuse bytes that are not UTF-8, which Spark would silently replace. Raises Unusable."""
    raw = fn.col("value").cast("binary")
    there_and_back = fn.decode(fn.encode("value", "UTF-16BE"), "UTF-16BE").cast("binary")
    wrong = lines.where(raw != there_and_back).select(raw.alias("line")).first()
    if wrong is None:
        return
    try:
        at = len(wrong.line.decode())
    except UnicodeDecodeError as error:
        at = error.start
    shown = bytes(wrong.line[max(0, at - _SHOWN) : at + _SHOWN])
    raise Unusable(f"{file}: is not UTF-8: {repr(shown)[1:]}; convert it, as with iconv")


def _check_quotes(lines: DataFrame, file: Path) -> None:
    """Refuse open quotes: Spark would take such a line for a row with part of the field, and the next line for another. Raises Unusable."""
    open_one = lines.where(fn.col("value").contains('"') & _ends_in_quotes(fn.col("value"))).first()
    if open_one is not None:
        shown = open_one.value if len(open_one.value) <= 2 * _SHOWN else open_one.value[: 2 * _SHOWN] + "..."
        raise Unusable(
            f"{file}: a quote is open at the end of the line {shown!r}; close it, or, for values with line breaks, give the file as Parquet"
        )


def _ends_in_quotes(line: Column) -> Column:
    """Whether a field in quotes has no end. A quote opens a field only as its first character; elsewhere it is text."""

    def after_quote(state: Column, text: Column) -> Column:
        opens = ~state["open"] & (state["before"].endswith(",") | (state["before"] == "") & (state["first"] | state["closed"]))
        return fn.struct(opens.alias("open"), state["open"].alias("closed"), fn.lit(False).alias("first"), text.alias("before"))

    parts = fn.split(line, '"')
    start = fn.struct(
        fn.lit(False).alias("open"), fn.lit(False).alias("closed"), fn.lit(True).alias("first"), fn.element_at(parts, 1).alias("before")
    )
    return fn.aggregate(fn.slice(parts, 2, fn.size(parts) - 1), start, after_quote, lambda state: state["open"])


def _key(table: DataFrame, plan: Plan) -> Column:
    name = plan.key_column or ("key" if "key" in table.columns else None)
    if name is None:
        return fn.lit(None).cast("binary")
    if name not in table.columns:
        raise Unusable(f"{plan.input}: has no column {name} for the key; it has {', '.join(table.columns)}")
    return _as_bytes(table, name, plan)


def _payload(table: DataFrame, plan: Plan) -> Column:
    if "value" in table.columns:
        return _as_bytes(table, "value", plan)
    return fn.to_json(fn.struct(*map(_column, table.columns))).cast("binary")


def _column(name: str) -> Column:
    """The column with this name, which may contain dots and backticks."""
    return fn.col(f"`{name.replace('`', '``')}`")


def _as_bytes(table: DataFrame, name: str, plan: Plan) -> Column:
    kind, column = table.schema[name].dataType, _column(name)
    if isinstance(kind, BinaryType | StringType):
        return column.cast("binary")
    if not isinstance(kind, AtomicType):
        raise Unusable(f"{plan.input}: column {name} is {kind.simpleString()}; it must be text, bytes or a number")
    return column.cast("string").cast("binary")
