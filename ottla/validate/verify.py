"""Finds faults in the received records with Spark SQL: the third stage. Every finding is a row that names the record."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from ottla.validate.accounts import BUCKET, difference
from ottla.validate.frames import frame_of, place
from ottla.validate.markers import markers_among
from ottla.validate.murmur2 import partition_of_key
from ottla.validate.plan import Plan
from ottla.validate.source import Source
from ottla.validate.topic import Offsets, Topic

KINDS = {
    "missing": "a row that was written is in no record",
    "duplicated": "a row is in more than one record",
    "corrupted": "the checksum does not fit, or the record cannot be read",
    "foreign": "a record of another run, or of a row that its stream does not have",
    "out of order": "within a stream and partition, a row stands behind one that was written later",
    "key out of order": "the same among the rows of one key",
    "misplaced": "a record is not in the partition that Java's producer chooses for its key",
    "gap": "before the end of a partition, an offset has neither a record nor the marker of a transaction",
    "read twice": "Spark got an offset more than once",
    "time went back": "a timestamp is below that of the record before it, of the same stream, or of the same partition with LogAppendTime",
    "in the future": "a record was read more than a minute before its timestamp or event time",
}
"""The kinds of findings, and their meanings."""
OF_COPIES = {
    "aborted": "a reader of committed records got one of a transaction that was aborted on purpose",
    "inconsistent": "at an offset, a reader of committed records got a record that a reader of all records did not get there",
}
"""Further kinds, for copies."""
COLUMNS = ("kind", "stream", "sequence", "partition", "offset", "key", "detail")
_LOCATED = 1000  # missing rows for which the place is looked for
_AT_ONCE = 20_000  # markers that the driver holds
_PLACE = "group int, number bigint"
_CLOCKS_MS = 60_000  # so much may the clocks of machines differ


def kinds_of(plan: Plan) -> dict[str, str]:
    """The kinds of findings of a run with this plan."""
    return KINDS | OF_COPIES if plan.copies is not None else KINDS


@dataclass(frozen=True, slots=True)
class Run:
    """The expected records: the rows of the source, and offsets from topic.first to `ends`. `work` is a folder for intermediate data.

    `plan` is that of the topic that was read. `everything` also has the records of aborted transactions, where copies were read.
    """

    plan: Plan
    topic: Topic
    source: Source
    ends: Offsets
    work: str
    everything: DataFrame | None = None


def findings(received: DataFrame, run: Run) -> DataFrame:
    """All findings; empty when everything holds. Runs a few jobs while it looks. Raises DidNotFinish."""
    own = received.where(_is_own(run)).withColumn("event_ms", fn.when(fn.col("intact"), fn.col("event_ms")))
    missing, duplicated = _accounted(own, run)
    parts = [_unreadable(received, run), missing, duplicated, *_dense(received, run)]
    ordered = _ordered(own, duplicated).cache()
    parts += [ordered, _keys_out_of_order(own, ordered), _misplaced(own, run), _in_the_future(own)]
    if run.everything is not None:
        parts.append(_inconsistent(received, run.everything))
    if run.topic.log_append_time:
        parts.append(_log_append_time(received))
    together, *others = (part for part in parts if part is not None)
    for part in others:
        together = together.unionByName(part)
    return together


def _is_own(run: Run) -> Column:
    is_own = (fn.col("run") == run.plan.run) & fn.col("sequence").between(0, run.source.count - 1)
    if run.plan.input is None:  # where a file is cut into streams is Spark's choice at every reading
        is_own &= fn.expr(f"sequence >= stream * {run.plan.rows}L div {run.plan.streams}")  # as spark.range() cuts
        is_own &= fn.expr(f"sequence < (stream + 1) * {run.plan.rows}L div {run.plan.streams}")
    return fn.coalesce(is_own, fn.lit(False))


def _cells(kind: Column, detail: Column, **known: Column) -> list[Column]:
    types = {"stream": "int", "sequence": "bigint", "partition": "int", "offset": "bigint", "key": "string"}
    cells = [known.get(name, fn.lit(None)).cast(kind_of).alias(name) for name, kind_of in types.items()]
    return [kind.alias("kind"), *cells, detail.alias("detail")]


def _record(kind: Column, detail: Column) -> list[Column]:
    """The cells of a finding about a record whose columns are at hand."""
    return _cells(kind, detail, **{name: fn.col(name) for name in ("stream", "sequence", "partition", "offset", "key")})


def _unreadable(received: DataFrame, run: Run) -> DataFrame:
    aborted = fn.col("run") == run.plan.aborted_run
    kind = fn.when(~fn.col("intact"), "corrupted").when(aborted, "aborted").otherwise("foreign")
    strange = fn.concat(fn.lit("stream "), fn.col("stream").cast("string"), fn.lit(" has no row "), fn.col("sequence").cast("string"))
    detail = (
        fn.when(fn.col("sequence").isNull(), "no row can be read from it: it is damaged, or somebody else's")
        .when(~fn.col("intact"), "the checksum does not fit")
        .when(aborted, "its transaction was aborted")
        .when(fn.col("run") == run.plan.run, strange)
        .otherwise(fn.concat(fn.lit("a record of run "), fn.col("run")))
    )
    return received.where(~fn.col("intact") | ~_is_own(run)).select(*_record(kind, detail))


def _accounted(own: DataFrame, run: Run) -> tuple[DataFrame | None, DataFrame | None]:
    """Rows that are missing, and all records but the first of rows that came more than once."""
    spark = own.sparkSession
    expected = spark.range(run.source.count).select(fn.lit(0).alias("group"), fn.col("id").alias("number"))
    found = difference(own.select(fn.lit(0).alias("group"), fn.col("sequence").alias("number")), expected)
    if found is None:
        return None, None
    missing = _lost(found.missing.withColumnRenamed("number", "sequence"), own, run)
    repeated = own.join(found.repeated.withColumnRenamed("number", "sequence"), "sequence")
    each = repeated.withColumn("which", fn.row_number().over(Window.partitionBy("sequence").orderBy("partition", "offset")))
    detail = fn.concat(
        fn.lit("record "), fn.col("which").cast("string"), fn.lit(" of "), fn.col("times").cast("string"), fn.lit(" of this row")
    )
    return missing, each.where(fn.col("which") > 1).select(*_record(fn.lit("duplicated"), detail))


def _lost(missing: DataFrame, own: DataFrame, run: Run) -> DataFrame:
    """The missing rows, generated or read again; for the first of them, also the offset behind which each should be."""
    lost = run.source.rows.select("stream", "sequence", "key").join(missing.select("sequence"), "sequence")
    lost = lost.withColumn("partition", partition_of_key(fn.col("key"), run.topic.partitions)).cache()
    first = lost.orderBy("sequence").limit(_LOCATED).select("stream", "partition", fn.col("sequence").alias("wanted"))
    before = own.select("stream", "partition", "sequence", "offset").join(fn.broadcast(first), ["stream", "partition"])
    before = before.where(fn.col("sequence") < fn.col("wanted")).groupBy("wanted").agg(fn.max_by("offset", "sequence").alias("offset"))
    placed = lost.join(fn.broadcast(before), lost.sequence == before.wanted, "left")
    where = fn.concat(fn.lit("no record has this row; it was to come behind offset "), fn.col("offset").cast("string"))
    return placed.select(*_record(fn.lit("missing"), fn.coalesce(where, fn.lit("no record has this row"))))


def _dense(received: DataFrame, run: Run) -> list[DataFrame]:
    spark = received.sparkSession
    spans = [(number, run.topic.first[number], end) for number, end in run.ends.items() if end > run.topic.first[number]]
    buckets = frame_of(spark, spans, "group int, first bigint, end bigint").select(
        "group",
        "first",
        "end",
        fn.explode(fn.sequence(fn.floor(fn.col("first") / BUCKET), fn.floor((fn.col("end") - 1) / BUCKET))).alias("bucket"),
    )
    low, high = fn.greatest("first", fn.col("bucket") * BUCKET), fn.least(fn.col("end"), (fn.col("bucket") + 1) * BUCKET) - 1
    expected = buckets.select("group", fn.explode(fn.sequence(low, high)).alias("number"))
    found = difference(received.select(fn.col("partition").alias("group"), fn.col("offset").alias("number")), expected)
    if found is None:
        return []
    where = {"partition": fn.col("group"), "offset": fn.col("number")}
    return [
        _without_markers(_without_aborted(found.missing, run), run).select(
            *_cells(fn.lit("gap"), fn.lit("no record has this offset"), **where)
        ),
        found.repeated.select(*_cells(fn.lit("read twice"), fn.concat(fn.col("times").cast("string"), fn.lit(" times")), **where)),
    ]


def _without_aborted(missing: DataFrame, run: Run) -> DataFrame:
    """A reader of all records knows what stands at the other offsets; a row that it alone got is missing."""
    if run.everything is None:
        return missing
    there = run.everything.select(fn.col("partition").alias("group"), fn.col("offset").alias("number"))
    return missing.join(there, ["group", "number"], "left_anti")


def _inconsistent(received: DataFrame, everything: DataFrame) -> DataFrame:
    same = everything.select("partition", "offset", "run", "sequence", "key")
    at = [received[name].eqNullSafe(same[name]) for name in same.columns]
    detail = fn.lit("a reader of all records did not get this one there")
    return received.join(same, at, "left_anti").select(*_record(fn.lit("inconsistent"), detail))


def _without_markers(missing: DataFrame, run: Run) -> DataFrame:
    """The missing offsets without those of markers. There may be as many markers as records: the driver holds few at a time."""
    spark, folder = missing.sparkSession, f"{run.work}/markers"
    nth = fn.row_number().over(Window.partitionBy("group").orderBy("number"))
    spans = missing.withColumn("behind", fn.col("number") - nth).groupBy("group", "behind")
    rising = spans.agg(fn.min("number").alias("begin"), fn.max("number").alias("end")).orderBy("group", "begin").toLocalIterator()
    markers = markers_among(run.plan, run.topic.name, ((span.group, span.begin, span.end) for span in rising))
    is_any = False
    while some := list(islice(markers, _AT_ONCE)):
        is_any = True
        frame_of(spark, some, _PLACE).write.mode("append").parquet(folder)
    return missing.join(spark.read.schema(_PLACE).parquet(place(folder)), ["group", "number"], "left_anti") if is_any else missing


def _ordered(own: DataFrame, duplicated: DataFrame | None) -> DataFrame:
    """Within a stream and a partition, sequence and timestamps rise with the offset. A duplicate is not reported again.

    Nor is the record behind one with a time in the future, since that one is reported.
    """
    along = Window.partitionBy("partition", "stream").orderBy("offset")
    names = ("sequence", "timestamp_ms", "event_ms")
    measures = {"sequence": fn.col("sequence"), **{name: fn.when(~_is_ahead(name), fn.col(name)) for name in names[1:]}}
    last = (fn.lag(measure).over(along).alias(f"last_{name}") for name, measure in measures.items())
    lines = own.select("partition", "stream", "offset", "key", *names, *last)
    behind = {name: fn.coalesce(fn.col(name) < fn.col(f"last_{name}"), fn.lit(False)) for name in names}
    wrong = lines.where(behind["sequence"] | behind["timestamp_ms"] | behind["event_ms"])
    if duplicated is not None:
        wrong = wrong.join(duplicated.select("partition", "offset"), ["partition", "offset"], "left_anti")
    kind = fn.when(behind["sequence"], "out of order").otherwise("time went back")
    order = fn.concat(fn.lit("behind sequence "), fn.col("last_sequence").cast("string"))
    time = fn.concat(
        fn.lit("by "),
        fn.greatest(fn.col("last_timestamp_ms") - fn.col("timestamp_ms"), fn.col("last_event_ms") - fn.col("event_ms")),
        fn.lit(" ms"),
    )
    return wrong.select(*_record(kind, fn.when(behind["sequence"], order).otherwise(time)))


def _is_ahead(time: str) -> Column:
    return fn.col(time) > fn.col("arrived_ms") + _CLOCKS_MS


def _in_the_future(own: DataFrame) -> DataFrame:
    """Records read more than a minute before they were made or written, by any clock."""
    ahead = fn.greatest("timestamp_ms", "event_ms") - fn.col("arrived_ms")
    wrong = own.where(_is_ahead("timestamp_ms") | _is_ahead("event_ms"))
    return wrong.select(*_record(fn.lit("in the future"), fn.concat(fn.lit("by "), ahead.cast("string"), fn.lit(" ms"))))


def _misplaced(own: DataFrame, run: Run) -> DataFrame | None:
    """Records in the wrong partition, found among the distinct pairs of key and partition, which are few."""
    pairs = own.where(fn.col("key").isNotNull()).select("key", "partition").distinct()
    wrong = pairs.withColumn("promised", partition_of_key(fn.col("key"), run.topic.partitions))
    wrong = wrong.where(fn.col("promised") != fn.col("partition")).cache()
    if wrong.isEmpty():
        wrong.unpersist()
        return None
    detail = fn.concat(fn.lit("the key belongs to partition "), fn.col("promised").cast("string"))
    return own.join(wrong, ["key", "partition"]).select(*_record(fn.lit("misplaced"), detail))


def _keys_out_of_order(own: DataFrame, ordered: DataFrame) -> DataFrame | None:
    """Records out of order within their key; only keys of a stream and partition that is out of order need a check."""
    suspects = ordered.where(fn.col("kind") == "out of order").select("partition", "stream").distinct().cache()
    if suspects.isEmpty():
        suspects.unpersist()
        return None
    before = fn.lag("sequence").over(Window.partitionBy("partition", "stream", "key").orderBy("offset"))
    lines = own.where(fn.col("key").isNotNull()).join(fn.broadcast(suspects), ["partition", "stream"]).withColumn("before", before)
    detail = fn.concat(fn.lit("behind sequence "), fn.col("before").cast("string"), fn.lit(" of the same key"))
    wrong = lines.where(fn.col("sequence") < fn.col("before"))
    return wrong.join(ordered.select("partition", "offset"), ["partition", "offset"], "left_semi").select(
        *_record(fn.lit("key out of order"), detail)
    )


def _log_append_time(received: DataFrame) -> DataFrame:
    """With LogAppendTime, timestamps rise within a partition, whichever producer wrote the record."""
    lag = fn.lag("timestamp_ms").over(Window.partitionBy("partition").orderBy("offset"))
    back = fn.col("before") - fn.col("timestamp_ms")
    wrong = received.withColumn("before", lag).where(back > 0)
    return wrong.select(*_record(fn.lit("time went back"), fn.concat(fn.lit("LogAppendTime, by "), back.cast("string"), fn.lit(" ms"))))
