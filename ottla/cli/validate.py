"""Implements `ottla validate`: reads its options, and starts the run with Spark."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import click
from click.core import ParameterSource

from ottla.cli.options import Amount, client_security, ended_in_order
from ottla.validate.plan import MAX_ROWS, Copies, Plan

_MIN_RECORD_BYTES = 64
_REPLICAS_IN_CHAOS = 3
_OTHERWISE = {
    "bootstrap.servers": "say it with --bootstrap",
    "acks": "say it with --acks",
    "compression.type": "say it with --codec",
    "transactional.id": "Spark's sink begins no transactions",
    "key.serializer": "Spark's sink has its own",
    "value.serializer": "Spark's sink has its own",
}
"""Configurations of the producers that are refused, with reasons: other parts of the run would not know of them."""
_COPIES = Copies()
_OF_COPIERS = ("copiers", "transaction_rows", "aborts", "copier_faults")


def _pairs(_: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not name=value", param=option)
        found[name] = value
    return found


def _producer(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    found = _pairs(context, option, texts)
    for name in found:
        if name in _OTHERWISE:
            raise click.BadParameter(f"{name}: {_OTHERWISE[name]}", param=option)
    return found


def _not_empty(_: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Refuses an empty text: an unset shell variable must not have the same effect as an omitted option."""
    if text == "":
        raise click.BadParameter("is empty", param=option)
    return text


def _path(context: click.Context, option: click.Parameter, text: str | None) -> Path | None:
    found = _not_empty(context, option, text)
    return None if found is None else Path(found)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "-b",
    "--bootstrap",
    "--bootstrap-server",
    "--brokers",
    "bootstrap",
    envvar="OTTLA_BOOTSTRAP_SERVER",
    default="127.0.0.1:9092",
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Brokers to ask first.",
)
@click.option(
    "--command-config",
    envvar="OTTLA_COMMAND_CONFIG",
    callback=_path,
    show_envvar=True,
    metavar="FILE",
    help="Properties for TLS and SASL, in the words of Java's clients or of librdkafka's.",
)
@click.option("--rows", type=click.IntRange(1, MAX_ROWS), default=1_000_000, help="How many rows to make.")
@click.option("--partitions", type=click.IntRange(1, 2**31 - 1), default=4, help="Partitions of the topic.")
@click.option("--replication-factor", type=click.IntRange(-1, 2**15 - 1), default=-1, help="Of the topic; -1 is the cluster's default.")
@click.option(
    "--record-bytes",
    type=click.IntRange(_MIN_RECORD_BYTES, 10_000_000),
    default=100,
    help="Bytes of a record's value; 52 of them say which row it is.",
)
@click.option("--codec", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", help="The producers' compression.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", help="What the producers wait for.")
@click.option("--master", default="local[*]", help="Spark's master, as spark://host:port.")
@click.option(
    "--mode",
    type=click.Choice(["stream", "batch"]),
    default="stream",
    help="One query of micro-batches, or available-now queries one by one.",
)
@click.option("--report", callback=_path, metavar="DIR", help="The folder to write; validate-TIME by default.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, help="Decides about keys and payloads, and marks the records.")
@click.option("--keys", type=click.IntRange(1, 2**31), default=10_000, help="How many different keys of each kind.")
@click.option("--key-kind", type=click.Choice(["both", "uniform", "skewed"]), default="both", help="How rows are spread over keys.")
@click.option("--input", callback=_path, metavar="FILE", help="A Parquet or CSV file (UTF-8, with a heading line) instead of made rows.")
@click.option(
    "--key-column",
    callback=_not_empty,
    help="The key in that file; 'key' if there is such a column. 'value', or all columns as JSON, is the payload.",
)
@click.option("--topic", callback=_not_empty, help="The topic; a new one by default, deleted when everything holds.")
@click.option("--keep-topic", is_flag=True, help="Do not delete the new topic.")
@click.option("--verify-only", is_flag=True, help="Write nothing: verify the topic that an earlier run with the same rows and seed wrote.")
@click.option(
    "--max-offsets-per-trigger",
    type=click.IntRange(1, 2**63 - 1),
    help="Records per micro-batch at most; a million by default, or more in large runs.",
)
@click.option("--stall", type=Amount(1), default=120.0, metavar="SECONDS", help="Give up when nothing comes for so long.")
@click.option("--producer", multiple=True, callback=_producer, metavar="KEY=VALUE", help="A configuration of the producers.")
@click.option(
    "--spark-conf", multiple=True, callback=_pairs, metavar="KEY=VALUE", help="A configuration of Spark, as spark.driver.memory=4g."
)
@click.option(
    "--chaos",
    callback=_path,
    metavar="DIR",
    help="Kill, stop and pause brokers meanwhile; DIR is the --dir of `ottla cluster`. The seed decides when.",
)
@click.option(
    "--tiered",
    is_flag=True,
    help="Give the topic tiered storage, and read only when nine tenths of the records are in the remote store alone.",
)
@click.option(
    "--exactly-once",
    is_flag=True,
    help="Copy the rows in transactions to a second topic, abort some of these, and verify what readers of committed records get.",
)
@click.option("--copiers", type=click.IntRange(1, 1000), default=_COPIES.copiers, help="How many processes copy.")
@click.option(
    "--transaction-rows", type=click.IntRange(1, 1_000_000), default=_COPIES.transaction_rows, help="Rows in a transaction at most."
)
@click.option(
    "--aborts", type=click.IntRange(0, 90), default=_COPIES.aborted_percent, metavar="PERCENT", help="Transactions aborted on purpose."
)
@click.option("--copier-faults", is_flag=True, help="Kill, stop and pause copiers meanwhile; --chaos includes that.")
@click.option(
    "--work",
    callback=_not_empty,
    help="Folder or URL for checkpoint and records; with executors elsewhere, it and --report must be shared.",
)
@click.pass_context
def validate(
    context: click.Context,
    /,
    bootstrap: str,
    command_config: Path | None,
    topic: str | None,
    report: Path | None,
    verify_only: bool,
    keep_topic: bool,
    stall: float,
    work: str | None,
    exactly_once: bool,
    copiers: int,
    transaction_rows: int,
    aborts: int,
    copier_faults: bool,
    **options: object,
) -> None:
    """Show with Spark whether a cluster keeps every record, in order, once, and how fast.

    Rows are written with Spark's Kafka sink and read with Structured Streaming at the same time; then Spark looks for what is missing,
    duplicated, corrupted, out of order or misplaced. With --exactly-once it looks for that in copies, which are made in transactions
    meanwhile. Exit status 0: everything holds; 1: it does not;
    2: it could not begin, or a disk got full.
    """
    if options["chaos"] is not None and (verify_only or options["acks"] != "all" or options["replication_factor"] == 1):
        raise click.UsageError("--chaos is for runs that write with acks=all and more than one replica.")
    if options["chaos"] is not None and options["replication_factor"] == -1:
        options["replication_factor"] = _REPLICAS_IN_CHAOS
    for name in _OF_COPIERS:
        if not exactly_once and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --exactly-once.")
    if exactly_once and verify_only:
        raise click.UsageError("--exactly-once is for runs that write.")
    if verify_only and topic is None:
        raise click.UsageError("--verify-only needs --topic.")
    if options["key_column"] is not None and options["input"] is None:
        raise click.UsageError("--key-column needs --input.")
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"  # two runs may begin in the same second
    plan = Plan(
        bootstrap=bootstrap,
        security=client_security(command_config),
        topic=topic or f"ottla-validate-{stamp}",
        report=report or Path(f"validate-{stamp}"),
        generates=not verify_only,
        keeps_topic=keep_topic or topic is not None,
        stall_s=stall,
        copies=Copies(copiers, transaction_rows, aborts, copier_faults or options["chaos"] is not None) if exactly_once else None,
        work=str(Path(work).absolute()) if work and "://" not in work else work,
        **options,  # type: ignore[arg-type]  # click has checked them, and they are named as the fields
    )
    from ottla.validate.run import run

    with ended_in_order():  # what was begun is cleared away
        status = run(plan)
    raise SystemExit(status)
