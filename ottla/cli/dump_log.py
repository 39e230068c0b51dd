"""Implements `ottla dump-log`: prints the files of a partition as Apache Kafka's DumpLogSegments does, or verifies a
data directory.

Exit status 1 when a file cannot be decoded, or when `--verify` found a problem.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.options import reported_errors
from ottla.cli.output import for_stream, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from ottla.cli.dump.decoders import BytesDecoder, Decoder
    from ottla.cli.dump.text import DumpOptions

_DECODER_CLASSES = "StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder"


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[FILE|DIR]...")
@click.option("--files", "listed", metavar="FILE,FILE...", help="Files, comma-separated, as kafka-dump-log.sh takes them.")
@click.option("--deep-iteration", is_flag=True, help="Print every record, not only batches.")
@click.option("--print-data-log", is_flag=True, help="Print keys and values, too.")
@click.option("--index-sanity-check", is_flag=True, help="Check indexes only as far as a broker does when it starts.")
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with the log without printing entries.")
@click.option("--offsets-decoder", is_flag=True, help="Decode keys and values as those of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode keys and values as those of __transaction_state.")
@click.option("--key-decoder-class", metavar="NAME", help=f"{_DECODER_CLASSES}.")
@click.option("--value-decoder-class", metavar="NAME", help=f"{_DECODER_CLASSES}.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option(
    "--max-message-size", type=int, default=5 * 1024 * 1024, show_default=True, help="Largest batch that an index may point to, in bytes."
)
@click.option("--max-bytes", type=int, help="Bytes to read of each log file.")
@click.option("--verify", is_flag=True, help="Check data directories instead of printing files.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes for --verify; by default one per core.")
@click.option("--json", "as_json", is_flag=True, help="With --verify: the report as JSON.")
def dump_log(
    paths: tuple[Path, ...],
    listed: str | None,
    deep_iteration: bool,
    print_data_log: bool,
    index_sanity_check: bool,
    verify_index_only: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
    skip_record_metadata: bool,
    max_message_size: int,
    max_bytes: int | None,
    verify: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Print log files, or check a data directory.

    Prints .log, .index, .timeindex, .txnindex and .snapshot files in the format of Apache Kafka's tool; for a
    directory, all such files below it. With --verify, directories are checked: batches, every record, checksums, offsets,
    indexes, snapshots, checkpoints.

    Nothing is written or locked; the directory of a running broker may be examined.
    """
    from ottla.cli.dump import decoders
    from ottla.cli.dump.text import MAX_INT32, DumpOptions

    chosen = [*paths, *(Path(name) for name in (listed or "").split(",") if name)]
    if not chosen:
        raise click.UsageError("Name at least one file or directory.")
    if verify:
        with reported_errors():
            status = _verify(chosen, workers=workers or os.cpu_count() or 1, as_json=as_json)
        sys.exit(status)
    if as_json:
        raise click.UsageError("--json requires --verify.")
    decoder: Decoder
    if offsets_decoder:
        decoder = decoders.offsets_decoder
    elif transaction_log_decoder:
        decoder = decoders.transaction_log_decoder
    else:
        decoder = decoders.plain_decoder(_bytes_decoder(key_decoder_class), _bytes_decoder(value_decoder_class))
    prints_data = bool(print_data_log or offsets_decoder or transaction_log_decoder or key_decoder_class or value_decoder_class)
    options = DumpOptions(
        deep_iteration or prints_data,
        prints_data,
        verify_index_only,
        index_sanity_check,
        skip_record_metadata,
        max_message_size,
        MAX_INT32 if max_bytes is None else max_bytes,
        decoder,
    )
    with reported_errors():
        status = _dump(chosen, options)
    sys.exit(status)


def _bytes_decoder(name: str | None) -> BytesDecoder:
    from ottla.cli.dump.decoders import BYTES_DECODERS

    decoder = BYTES_DECODERS.get((name or "StringDecoder").rpartition(".")[2])
    if decoder is None:
        raise click.UsageError(f"Unknown decoder {name}; use {_DECODER_CLASSES}.")
    return decoder


def _dump(paths: list[Path], options: DumpOptions) -> int:
    from ottla.cli.dump.text import CannotDump, Dump

    out = sys.stdout
    dump = Dump(options, lambda line: print(for_stream(line, out), file=out))
    status = 0
    is_any_known = False
    for path in paths:
        files = sorted(file for file in path.rglob("*") if dump.knows(file) and file.is_file()) if path.is_dir() else [path]
        for file in files:
            if not dump.knows(file):
                say(f"Ignoring unknown file {file}")
                continue
            is_any_known = True
            try:
                dump.file(file)
            except CannotDump as error:
                out.flush()
                say(f"ottla: {error}")
                status = 1
            except OSError as error:
                out.flush()
                say(f"ottla: {error.filename or file}: {error.strerror or error}")
                status = 1
    out.flush()
    if not is_any_known:
        say(f"ottla: no file of a log is in {', '.join(map(str, paths))}")
        status = 1
    for line in dump.disagreements.lines():
        say(line)
    return status


def _verify(paths: list[Path], *, workers: int, as_json: bool) -> int:
    from ottla.cli.dump.directory_check import check_directory

    reports = []
    for path in paths:
        if not path.is_dir():
            raise click.UsageError(f"--verify takes directories; {path} is not one.")
        with progress_bar(f"checking {path}", None, quiet=as_json) as advance:
            reports.append(check_directory(path, workers=workers, progress=advance))
    problems = [problem for report in reports for problem in report.all_problems]
    if as_json:
        print_json(
            [
                {
                    "directory": report.directory,
                    "live": report.is_live,
                    "problems": report.problems,
                    "partitions": [partition._asdict() for partition in report.partitions],
                }
                for report in reports
            ]
        )
        return 1 if problems else 0
    columns = ("directory", "segments", "bytes", "batches", "records", "start offset", "end offset", "problems")
    for report in reports:
        rows = [[Path(found.directory).name, *found[1:-1], len(found.problems)] for found in report.partitions]
        print_table(columns, rows, title=f"{report.directory} (in use by a broker)" if report.is_live else report.directory)
    for problem in problems:
        print(for_stream(f"PROBLEM {problem}", sys.stdout))
    print(f"{len(problems)} problems" if problems else "no problems")
    return 1 if problems else 0
