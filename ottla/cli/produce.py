"""Implements `ottla produce`: writes records from lines, files or JSON to a topic.

Exit status 1 when a record could not be delivered; the summary has the records that were delivered before.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.options import Amount, cluster_command, ended_in_order
from ottla.cli.output import counted, print_json, progress_bar, say
from ottla.cli.records.registry_options import registry_options
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.cli.records.by_schema import Encoding
    from ottla.cli.records.record_input import LineReader
    from ottla.client.cluster import Cluster
    from ottla.client.producer import Delivery, OutgoingRecord, Producer
    from ottla.schemas.schema_registry import SchemaRegistry

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
_RECORDS_PER_POLL = 64
_SCHEMA_ID = click.IntRange(0, 2**31 - 1)


@click.command()
@click.argument("topic")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path), metavar="[FILE]...")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="The partition; by default chosen by the key, as in Java's producer.")
@click.option("-k", "--key", help="The key of all records.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Ends the key in each line; \\t and \\x1e are escapes.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, metavar="TEXT", help="Ends each record.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of all records; may be repeated.")
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="Empty keys and values are null (tombstones).")
@click.option("--whole", is_flag=True, help="Each file is one record.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Read lines of JSON (key, value, headers, ...), print the summary as JSON.")
@click.option("--base64", "as_base64", is_flag=True, help="With --json: keys, values and header values are base64.")
@click.option("--timestamp", metavar="TIME", help="The timestamp of all records.")
@click.option("-z", "--compression", type=click.Choice(_CODECS), default="none", show_default=True, help="Codec of the batches.")
@click.option("--compression-level", type=int, help="Compression level; by default that of the codec.")
@click.option("-a", "--acks", type=click.Choice(list(_ACKS)), default="all", show_default=True, help="Replicas that must have a batch.")
@click.option("--linger", type=Amount(min=0), default=5.0, show_default=True, metavar="MS", help="How long a batch waits for more records.")
@click.option("--batch-bytes", type=click.IntRange(min=1), default=262_144, show_default=True, help="Largest batch, before compression.")
@click.option("--rate", type=Amount(min=0, min_open=True), metavar="N", help="At most this many records per second.")
@click.option(
    "--delivery-timeout", type=Amount(0.1), default=120.0, show_default=True, metavar="SECONDS", help="Time for a record, retries included."
)
@click.option("--create-topic", is_flag=True, help="Let the broker create the topic on demand, if it is so configured.")
@click.option("-v", "--verbose", is_flag=True, help="Print the partition and offset of each batch.")
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@click.option("--key-schema", type=_SCHEMA_ID, metavar="ID", help="Keys are JSON; write them by this schema of the registry.")
@click.option("--value-schema", type=_SCHEMA_ID, metavar="ID", help="Values are JSON; write them by this schema of the registry.")
@registry_options
@cluster_command
@ended_in_order()
def produce(
    cluster: Cluster,
    topic: str,
    files: tuple[Path, ...],
    partition: int | None,
    key: str | None,
    key_delimiter: str | None,
    delimiter: str,
    headers: tuple[str, ...],
    empty_is_null: bool,
    whole: bool,
    as_json: bool,
    as_base64: bool,
    timestamp: str | None,
    compression: str,
    compression_level: int | None,
    acks: str,
    linger: float,
    batch_bytes: int,
    rate: float | None,
    delivery_timeout: float,
    create_topic: bool,
    verbose: bool,
    quiet: bool,
    key_schema: int | None,
    value_schema: int | None,
    registry: SchemaRegistry | None,
) -> None:
    """Write records to TOPIC: lines of standard input, or of FILEs.

    \b
    echo hello | ottla produce greetings
    ottla produce -K: users < users.txt            # key:value lines
    ottla consume --json -e a | ottla produce --json b
    """

    from ottla.client.cluster import UnknownTopic
    from ottla.client.producer import Producer, ProducerSettings
    from ottla.protocol.records.compression import CODEC_BY_NAME

    if as_base64 and not as_json:
        raise click.UsageError("--base64 requires --json.")
    if whole and (as_json or not files):
        raise click.UsageError("--whole requires FILEs, and excludes --json.")
    end_of_record, end_of_key = _separators(delimiter, key_delimiter)
    reader = _reader(key, end_of_key, headers, partition, timestamp, empty_is_null=empty_is_null)
    encoding = _encoding(registry, key_schema, value_schema)
    summary = Summary(topic, verbose=verbose, as_json=as_json)
    settings = ProducerSettings(
        acks=_ACKS[acks],
        codec=CODEC_BY_NAME[compression],
        compression_level=compression_level,
        linger_seconds=linger / 1000,
        batch_bytes=batch_bytes,
        delivery_timeout_seconds=delivery_timeout,
    )
    try:
        producer = Producer(cluster, topic, settings, summary.on_delivery, may_create_topic=create_topic)
    except UnknownTopic as error:
        raise ClientError(f"{error}; --create-topic lets the broker create it") from None
    source = _Source(files, end_of_record, reader, as_json=as_json, as_base64=as_base64, whole=whole)
    try:
        _deliver(producer, source, summary, rate, encoding)
    except ClientError as error:
        summary.error = error
        raise
    finally:
        producer.close()
        if not quiet:
            summary.show()


def _encoding(registry: SchemaRegistry | None, key_schema: int | None, value_schema: int | None) -> Encoding | None:
    """The schemas by which records are written; None without one. Raises UsageError."""
    if key_schema is None and value_schema is None:
        return None
    from ottla.cli.records.by_schema import Encoding

    if registry is None:
        raise click.UsageError("--key-schema and --value-schema require --schema-registry.")
    return Encoding(registry, key_schema, value_schema)


def _separators(delimiter: str, key_delimiter: str | None) -> tuple[bytes, bytes | None]:
    """The delimiters of records and of keys. Raises UsageError for an invalid one."""
    from ottla.cli.records.record_format import unescape

    try:
        separators = unescape(delimiter), None if key_delimiter is None else unescape(key_delimiter)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    if b"" in separators:
        raise click.UsageError("A delimiter has at least one character.")
    return separators


def _reader(
    key: str | None,
    end_of_key: bytes | None,
    headers: tuple[str, ...],
    partition: int | None,
    timestamp: str | None,
    *,
    empty_is_null: bool,
) -> LineReader:
    """The reader that converts lines to records. Raises UsageError for an invalid time or header."""
    from ottla.cli.options import pairs
    from ottla.cli.records.record_format import encoded
    from ottla.cli.records.record_input import LineReader
    from ottla.cli.times import parse_time

    try:
        timestamp_ms = None if timestamp is None else parse_time(timestamp, int(time.time() * 1000))
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    return LineReader(
        key=None if key is None else encoded(key),
        key_delimiter=end_of_key,
        headers=tuple((encoded(name), encoded(value)) for name, value in pairs(headers, "--header")),
        partition=partition,
        timestamp_ms=timestamp_ms,
        empty_is_null=empty_is_null,
    )


def _deliver(producer: Producer, source: _Source, summary: Summary, rate: float | None, encoding: Encoding | None) -> None:
    """Send all records and wait for their answers. Raises the error of the first failed delivery."""
    with source.progress() as advance:
        try:
            try:
                _send_all(producer, source, summary, rate, advance, encoding)
            except KeyboardInterrupt:
                say("interrupted; delivering the records that were read. Ctrl-C again ends at once")
                producer.reconnect()
            producer.flush()
        except KeyboardInterrupt:
            raise ClientError("interrupted before all records were delivered") from None
        summary.raise_first_error()


class Summary:
    """Counts the outcomes of records; stops the command at the first failed delivery."""

    def __init__(self, topic: str, *, verbose: bool, as_json: bool) -> None:
        self._topic = topic
        self._verbose = verbose
        self._as_json = as_json
        self._began = time.monotonic()
        self._records = self._bytes = self._failed = 0
        self._partitions: dict[int, _Written] = {}
        self.error: ClientError | None = None
        """The first reason why records were not delivered."""

    def on_delivery(self, delivery: Delivery) -> None:
        """The producer's callback."""
        if delivery.error is not None:
            self._failed += delivery.records
            self.error = self.error or delivery.error
            return
        self._records += delivery.records
        self._bytes += delivery.bytes
        self._partitions.setdefault(delivery.partition.partition, _Written()).add(delivery)
        if self._verbose:
            where = f" from offset {delivery.base_offset}" if delivery.base_offset >= 0 else ""
            say(f"{delivery.partition}: {counted(delivery.records, 'record')}{where}")

    def raise_first_error(self) -> None:
        """Raises the error of the first refused batch."""
        if self.error is not None:
            raise self.error

    def show(self) -> None:
        """Print a line to standard error, or one JSON document to standard output."""
        if self._as_json:
            print_json(self._document())
        else:
            say(self._text())

    def _text(self) -> str:
        seconds = time.monotonic() - self._began
        partitions = counted(len(self._partitions), "partition")
        failed = f", {self._failed} not delivered" if self._failed else ""
        return f"{counted(self._records, 'record')} ({self._bytes} bytes) to {partitions} of {self._topic} in {seconds:.1f} s{failed}"

    def _document(self) -> dict[str, object]:
        return {
            "topic": self._topic,
            "records": self._records,
            "bytes": self._bytes,
            "not_delivered": self._failed,
            "error": None if self.error is None else str(self.error),
            "partitions": [
                {"partition": number, "records": written.records, "first_offset": written.first, "last_offset": written.last}
                for number, written in sorted(self._partitions.items())
            ],
        }


class _Written:
    """Sums up the records that one partition took. The offsets are None without acknowledgements."""

    def __init__(self) -> None:
        self.records = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, delivery: Delivery) -> None:
        self.records += delivery.records
        if delivery.base_offset >= 0:
            self.first = delivery.base_offset if self.first is None else min(self.first, delivery.base_offset)
            self.last = max(self.last or 0, delivery.base_offset + delivery.records - 1)


class _Source:
    """Reads the records from files or standard input."""

    def __init__(
        self,
        files: tuple[Path, ...],
        delimiter: bytes,
        reader: LineReader,
        *,
        as_json: bool,
        as_base64: bool,
        whole: bool,
    ) -> None:
        self._files = files
        self._delimiter = delimiter
        self._reader = reader
        self._as_json = as_json
        self._as_base64 = as_base64
        self._whole = whole
        self.read_bytes = 0

    @contextmanager
    def progress(self) -> Iterator[Callable[..., None]]:
        """A progress bar over the bytes of the files; none for standard input."""
        sizes = [path.stat().st_size for path in self._files if str(path) != "-"]
        with progress_bar("producing", sum(sizes) or None, quiet=not sizes) as advance:
            yield advance

    def records(self, patience: Callable[[], float | None]) -> Iterator[OutgoingRecord | None]:
        """The records; None when none came for a while. Raises ClientError for malformed input."""
        if not self._files:
            yield from self._from_descriptor(sys.stdin.fileno(), "standard input", patience)
        for path in self._files:
            if str(path) == "-":
                yield from self._from_descriptor(sys.stdin.fileno(), "standard input", patience)
            elif self._whole:
                with _reading(path):
                    data = path.read_bytes()
                self.read_bytes += len(data)
                yield self._reader.record(data)
            else:
                with _reading(path):
                    descriptor = os.open(path, os.O_RDONLY)
                try:
                    yield from self._from_descriptor(descriptor, str(path), patience)
                finally:
                    os.close(descriptor)

    def _from_descriptor(self, descriptor: int, name: str, patience: Callable[[], float | None]) -> Iterator[OutgoingRecord | None]:
        from ottla.cli.records.record_input import PieceTooLarge, pieces
        from ottla.cli.records.record_json import NotARecord, parse_json_line

        number = 0
        try:
            for piece in pieces(descriptor, self._delimiter, patience):
                if piece is None:
                    yield None
                    continue
                number += 1
                self.read_bytes += len(piece) + len(self._delimiter)
                if not self._as_json:
                    yield self._reader.record(piece)
                elif piece.strip():
                    yield self._reader.complete(parse_json_line(piece, as_base64=self._as_base64))
        except (NotARecord, PieceTooLarge) as error:
            raise ClientError(f"{name}, line {number}: {error}") from None
        except OSError as error:
            raise ClientError(f"{name}: {error.strerror or error}") from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Gives the error of a file that cannot be read, such as one that was removed since the command began, as a ClientError."""
    try:
        yield
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror or error}") from None


def _send_all(
    producer: Producer, source: _Source, summary: Summary, rate: float | None, advance: Callable[..., None], encoding: Encoding | None
) -> None:
    began = time.monotonic()
    sent = 0

    def patience() -> float | None:
        producer.poll(0)
        deadline = producer.next_deadline
        if deadline is not None:
            return deadline - time.monotonic()
        return 0.02 if producer.has_work else None

    try:
        for record in source.records(patience):
            if record is not None:
                producer.send(record if encoding is None else encoding.record(record))
                sent += 1
            if record is None or sent % _RECORDS_PER_POLL == 0:
                producer.poll(0)
                summary.raise_first_error()
                advance(source.read_bytes)
            if rate is not None and record is not None:
                _keep_to(rate, began, sent, producer)
    except ClientError:
        producer.flush()  # deliver the records before the malformed line
        raise


def _keep_to(rate: float, began: float, sent: int, producer: Producer) -> None:
    while (early := began + sent / rate - time.monotonic()) > 0:
        producer.poll(0)
        time.sleep(min(early, 0.01))
