"""Writes findings and measurements as Parquet into the report's folder, and computes the numbers of the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from ottla.validate import plots
from ottla.validate.chaos import VICTIMS
from ottla.validate.frames import frame_of, place
from ottla.validate.ingest import records_uncommitted
from ottla.validate.measure import PERCENTILES, Measurements, measure
from ottla.validate.transfer import Transfer
from ottla.validate.verify import COLUMNS, Run, findings, kinds_of

Series = Mapping[str, list[dict[str, float]]]
"""Rows of measurements, by the name of their folder."""

_EXAMPLES = 20
_MB = 1e6
_SHORTEST_MS = 1000
_THROUGHPUT_SAYS = "Written: by the timestamps of the records. Read: when Spark's source handed them over."
_LATENCY_SAYS = (
    "From the making of a row to its reading, by the second in which it was written; 99 of 100 records took no longer than p99. "
    "Spark's own part, queueing and the length of its micro-batches, is most of it in a short run."
)
_SKEW_SAYS = "The keys decide: skewed ones fill some partitions more than others, whichever broker it is."


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict. `made_topic` says that the run created the topic."""

    holds: bool
    text: str
    report: Mapping[str, object]
    plots: Mapping[str, tuple[str, str]]
    made_topic: bool


def judge(transfer: Transfer, folder: Path, environment: Mapping[str, str], say: Callable[[str], None]) -> Verdict:
    """Verify, measure, and write the Parquet folders `findings`, `throughput`, `latency`, `partitions` and `batches`."""
    began = time.monotonic()
    received = transfer.ingest.received()
    spark = received.sparkSession
    plan, everything = transfer.plan, _everything(transfer)
    run = Run(plan.output, transfer.topic, transfer.source, transfer.ends, transfer.work, everything)
    found = _written(findings(received, run), folder / "findings")
    counts = {row.kind: row["count"] for row in found.groupBy("kind").count().collect()}
    checks = {kind: counts.get(kind, 0) for kind in kinds_of(plan)}
    verified = time.monotonic()
    say(f"verified, {verified - began:.1f} s; measuring")
    measured = measure(received)
    series = {name: _rows(_written(frame, folder / name)) for name, frame in measured.frames.items()} if measured else {}
    _write_batches(spark, transfer, folder)
    holds = not any(checks.values())
    transactions = _transactions(transfer, everything, received)
    text = _text(transfer, checks, transactions)
    seconds = {**transfer.seconds, "verify": verified - began, "measure": time.monotonic() - verified}
    report = {
        "holds": holds,
        "verdict": text,
        "rows": transfer.source.count,
        "records": measured.totals.records if measured else 0,
        "checks": checks,
        "examples": _examples(found, checks),
        "transactions": transactions,
        "remote": {"records": transfer.moved_away} if plan.tiered else {},
        "summary": _summary(transfer, measured, series) | _copied(transactions),
        "latency_ms": {name: measured.totals[name] for name in (*PERCENTILES, "max")} if measured else {},
        "measurements": series,
        "seconds": {name: round(value, 3) for name, value in seconds.items() if name != "ends"},
        "restarts_of_ingest": transfer.ingest.restarts,
        "faults": transfer.faults,
        "environment": dict(environment),
    }
    return Verdict(holds, text, report, _pictures(transfer, measured, series), transfer.written.is_new)


def _pictures(transfer: Transfer, measured: Measurements | None, series: Series) -> dict[str, tuple[str, str]]:
    if measured is None:
        return {}
    throughput, latency, partitions = (series[name] for name in ("throughput", "latency", "partitions"))
    pictures = {"Throughput": (_THROUGHPUT_SAYS, plots.throughput(throughput, measured.slice_s, transfer.faults_since(measured.begin_ms)))}
    if transfer.plan.generates and latency:  # otherwise it would be how long ago the rows were made
        end_s = throughput[-1]["second"] + measured.slice_s
        pictures["Latency"] = (_LATENCY_SAYS, plots.latency(latency, measured.slice_s, end_s))
    return pictures | {"Records per partition": (_SKEW_SAYS, plots.skew(partitions, transfer.topic.partitions))}


def _everything(transfer: Transfer) -> DataFrame | None:
    """The records for readers of all records; None unless copies were read."""
    if transfer.copiers is None:
        return None
    spark = transfer.source.rows.sparkSession
    return records_uncommitted(spark, transfer.plan, transfer.topic, transfer.ends, transfer.work)


def _transactions(transfer: Transfer, everything: DataFrame | None, received: DataFrame) -> dict[str, int]:
    """Numbers of the copiers' transactions and of the records of aborted ones; empty without copiers."""
    copiers = transfer.copiers
    if copiers is None or everything is None:
        return {}
    ended = {outcome: copiers.transactions[outcome] for outcome in ("committed", "aborted", "failed")}
    return {**ended, "restarts_of_copiers": copiers.restarts, "aborted_records": everything.count() - received.count()}


def _copied(transactions: Mapping[str, int]) -> dict[str, str]:
    if not transactions:
        return {}
    text = "{committed:,} committed, {aborted:,} aborted on purpose, {failed:,} aborted after an error"
    hidden = "{aborted_records:,}, which readers of committed records do not get"
    facts = {"transactions": text, "records of aborted transactions": hidden, "copiers started again": "{restarts_of_copiers:,}"}
    return {name: fact.format(**transactions) for name, fact in facts.items()}


def _text(transfer: Transfer, checks: Mapping[str, int], transactions: Mapping[str, int]) -> str:
    if any(checks.values()):
        return "It does not hold: " + ", ".join(f"{count:,} {kind}" for kind, count in checks.items() if count)
    if transactions:
        hidden = transactions["aborted_records"]
        return f"Everything holds: {transfer.source.count:,} rows were copied exactly once, in order; {hidden:,} aborted records are hidden"
    return f"Everything holds: {transfer.source.count:,} rows came through, once, whole and in order"


def _summary(transfer: Transfer, measured: Measurements | None, series: Series) -> dict[str, str]:
    """Text for people: every number with its unit."""
    facts = {"rows that were made": f"{transfer.source.count:,}"}
    if measured is None:
        return facts | {"records read": "none"}
    totals = measured.totals
    facts["records read"] = f"{totals.records:,}, {totals.bytes / _MB:,.1f} MB of keys and values"
    if transfer.plan.generates:
        facts["written"] = _rate(measured, totals.first_written_ms, totals.last_written_ms)
    facts["read"] = _rate(measured, totals.first_read_ms, totals.last_read_ms)
    whole_s = max(transfer.seconds["ingest"], 1e-3)
    what = "write and read" if transfer.plan.generates else "read"
    facts["in all"] = f"{whole_s:,.1f} s to {what}, {totals.records / whole_s:,.0f} records/s, with Spark's own beginning"
    if transfer.plan.generates and totals["p50"] is not None:
        facts["latency"] = ", ".join(f"{name} {totals[name]:,.0f} ms" for name in (*PERCENTILES, "max"))
    records = max(row["records"] for row in series["partitions"])
    facts["fullest partition"] = f"{records:,} records, {records * transfer.topic.partitions / totals.records:.2f} times the mean"
    if transfer.plan.tiered:
        facts["in the remote store only"] = f"{transfer.moved_away:,} records, before the first was read"
    facts["micro-batches"] = f"{len(transfer.ingest.batches):,}"
    return facts | ({"faults": _faults(transfer, measured)} if transfer.has_chaos else {})


def _rate(measured: Measurements, first_ms: int, last_ms: int) -> str:
    """The rate over the time in which records moved, without the start of Spark."""
    if last_ms - first_ms < _SHORTEST_MS:
        return "all within a second"
    seconds, totals = (last_ms - first_ms) / 1000, measured.totals
    rate = f"{totals.records / seconds:,.0f} records/s, {totals.bytes / _MB / seconds:,.2f} MB/s"
    return f"{rate}, in the {seconds:,.1f} s from the first to the last"


def _faults(transfer: Transfer, measured: Measurements) -> str:
    """The faults, with the number of those during writing and reading; Spark needs a while before it writes."""
    totals = measured.totals
    span_s = (max(totals.last_written_ms, totals.last_read_ms) - measured.begin_ms) / 1000
    meanwhile = sum(0 <= at <= span_s for at in transfer.faults_since(measured.begin_ms))
    each = ", ".join(
        f"{one['fault']} {kind} {one[kind]} after {one['after_s']} s" for one in transfer.faults for kind in VICTIMS if kind in one
    )
    return f"{len(transfer.faults)}, {meanwhile} of them while records were written and read: {each}" if each else "none came in time"


def _examples(found: DataFrame, checks: Mapping[str, int]) -> list[dict[str, object]]:
    examples: list[dict[str, object]] = []
    for kind in (kind for kind, count in checks.items() if count):
        some = found.where(fn.col("kind") == kind).orderBy("sequence", "partition", "offset").limit(_EXAMPLES)
        examples += [{name: row[name] for name in COLUMNS} for row in some.collect()]
    return examples


def _written(frame: DataFrame, path: Path) -> DataFrame:
    frame.coalesce(1).write.parquet(str(path))
    return frame.sparkSession.read.schema(frame.schema).parquet(place(str(path)))


def _rows(frame: DataFrame) -> list[dict[str, float]]:
    return [row.asDict() for row in frame.orderBy(frame.columns[0]).collect()]


def _write_batches(spark: SparkSession, transfer: Transfer, folder: Path) -> None:
    batches = [transfer.ingest.batches[number] for number in sorted(transfer.ingest.batches)]
    schema = "batch bigint, began string, rows bigint, rows_per_s double, duration_ms bigint"
    cells = [tuple(one[name.split()[0]] for name in schema.split(", ")) for one in batches]
    _written(frame_of(spark, cells, schema), folder / "batches")
