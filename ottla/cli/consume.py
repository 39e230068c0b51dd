"""Implements `ottla consume`: reads records and prints them, partition by partition or as a member of a group.

Ends with status 0 when the requested records were read, or on an interrupt; with 1 after an error.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from ottla.cli.options import cluster_command, ended_in_order, numbers, topic_names
from ottla.cli.output import counted, printable_bytes, progress_bar, say
from ottla.cli.records.registry_options import registry_options
from ottla.cli.records.slow_pipe import SlowPipe
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.cli.records.consume_range import Limits
    from ottla.client.cluster import Cluster
    from ottla.client.fetcher import FetchedBatch, Fetcher
    from ottla.client.group_member import GroupMember
    from ottla.protocol.topic_partition import TopicPartition
    from ottla.schemas.schema_registry import SchemaRegistry

_COMMIT_SECONDS = 5.0
_UNSTABLE_SECONDS = 0.1
"""Pause before offsets that a transaction has not committed yet are asked for again."""
Render = Callable[["FetchedBatch"], Iterator[bytes]]


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:PARTITIONS]...")
@click.option("-p", "--partitions", metavar="0,2-4", help="Only these partitions of every topic.")
@click.option(
    "-o",
    "--offset",
    default="start",
    show_default=True,
    metavar="OFFSET",
    help="The beginning: start, end, N, +N (after the first N of each), -N (the last N) or @TIME.",
)
@click.option("--until", metavar="OFFSET", help="The end: end, N (exclusive) or @TIME; by default the command waits for new records.")
@click.option("-e", "--exit", "to_end", is_flag=True, help="The same as --until end.")
@click.option("-c", "--count", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("-G", "--group", help="Read as a member of this group: partitions are shared, offsets committed.")
@click.option("--instance-id", help="With --group: be a static member.")
@click.option("--no-commit", is_flag=True, help="With --group: commit nothing.")
@click.option(
    "-f",
    "--format",
    "template",
    metavar="FORMAT",
    help="Like kcat's: %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time.",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--base64", "as_base64", is_flag=True, help="With --json: keys, values and header values in base64.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Print keys, too, followed by this.")
@click.option("-D", "--delimiter", default="\\n", show_default=True, metavar="TEXT", help="Printed after each record.")
@click.option("-Z", "--null", "null", is_flag=True, help="Print NULL for null keys and values.")
@click.option("--print-offset", is_flag=True, help="Print topic, partition and offset before each record.")
@click.option("--print-timestamp", is_flag=True, help="Print the timestamp before each record.")
@click.option("--print-headers", is_flag=True, help="Print the headers before each record.")
@click.option("--read-committed", is_flag=True, help="Skip records that were aborted or are not committed yet.")
@click.option("--raw", is_flag=True, help="Control characters of records reach a terminal; elsewhere they always do.")
@click.option("-O", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write into this file.")
@click.option("-q", "--quiet", is_flag=True, help="No remarks.")
@registry_options
@cluster_command
@ended_in_order()
def consume(
    cluster: Cluster,
    topics: tuple[str, ...],
    partitions: str | None,
    offset: str,
    until: str | None,
    to_end: bool,
    count: int | None,
    group: str | None,
    instance_id: str | None,
    no_commit: bool,
    template: str | None,
    as_json: bool,
    as_base64: bool,
    key_delimiter: str | None,
    delimiter: str,
    null: bool,
    print_offset: bool,
    print_timestamp: bool,
    print_headers: bool,
    read_committed: bool,
    raw: bool,
    output: Path | None,
    quiet: bool,
    registry: SchemaRegistry | None,
) -> None:
    """Print the records of TOPICs.

    \b
    ottla consume -e orders                        # all records
    ottla consume -o -10 -e -f '%p:%o %k=%s\\n' orders
    ottla consume -o @-1h --json orders            # from an hour ago on
    ottla consume -G readers orders                # as a member of a group
    """
    from ottla.client.fetcher import FetchSettings
    from ottla.client.offsets import READ_COMMITTED, READ_UNCOMMITTED

    if as_base64 and not as_json:
        raise click.UsageError("--base64 requires --json.")
    if to_end and until not in (None, "end"):
        raise click.UsageError("--exit and --until contradict each other.")
    if group and (partitions or any(":" in topic for topic in topics)):
        raise click.UsageError("With --group the group assigns the partitions; none can be chosen.")
    shown = printable_bytes if output is None and not raw and sys.stdout.isatty() else None
    try:
        render = _renderer(
            template, as_json, as_base64, key_delimiter, delimiter, null, print_offset, print_timestamp, print_headers, shown=shown
        )
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    settings = FetchSettings(isolation=READ_COMMITTED if read_committed else READ_UNCOMMITTED)
    stop_at = "end" if to_end else until
    with _opened(output) as out:
        sink = _Sink(out, render if registry is None else _by_schema(registry, render, quiet=quiet), count)
        try:
            if group:
                member = _member(cluster, group, topics, instance_id)
                sink.wait_with(member.tend)
                _Membership(cluster, group, member, settings.isolation, stop_at, sink, commits=not no_commit).run(
                    settings, offset, quiet=quiet
                )
            else:
                _read(cluster, _chosen(cluster, topics, partitions), offset, stop_at, sink, quiet=quiet, isolation=settings.isolation)
        except KeyboardInterrupt:
            sink.complete()
    if not quiet and (output is not None or sys.stdout.isatty()):
        say(counted(sink.written, "record"))


def _by_schema(registry: SchemaRegistry, render: Render, *, quiet: bool) -> Render:
    """The function that formats the records of a batch after they are decoded."""
    from ottla.cli.records.by_schema import Decoding

    decoding = Decoding(registry, (lambda _: None) if quiet else say)
    return lambda batch: render(decoding.batch(batch))


class _Sink:
    """Prints records up to the limit of their number."""

    def __init__(self, out: IO[bytes], render: Render, count: int | None) -> None:
        self._out: IO[bytes] | SlowPipe = out
        self._render = render
        self._count = count
        self.written = 0

    def wait_with(self, meanwhile: Callable[[], object]) -> None:
        """Have this called about once a second while the reader of a pipe is slow."""
        if not isinstance(self._out, SlowPipe) and _is_pipe(self._out):
            self._out.flush()
            self._out = SlowPipe(self._out, meanwhile)

    def complete(self) -> None:
        """End the output with a whole record after an interrupt."""
        if isinstance(self._out, SlowPipe):
            self._out.complete()

    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._count is not None and self.written >= self._count

    def write(self, batch: FetchedBatch, limits: Limits) -> int:
        """Print the records within the limits; returns the offset up to which the batch is processed."""
        end = None if limits.offsets is None else limits.offsets.get(batch.partition)
        wanted = batch.records
        if end is not None or limits.time_ms is not None:
            wanted = [
                record
                for record in wanted
                if (end is None or record.offset < end) and (limits.time_ms is None or record.timestamp < limits.time_ms)
            ]
        if self._count is not None:
            wanted = wanted[: self._count - self.written]
        self._out.writelines(self._render(batch._replace(records=wanted)))
        self.written += len(wanted)
        if len(wanted) == len(batch.records):
            return batch.next_offset
        printed = {record.offset for record in wanted}
        return next(record.offset for record in batch.records if record.offset not in printed)

    def flush(self) -> None:
        self._out.flush()


def _is_pipe(out: IO[bytes]) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(out.fileno()).st_mode)
    except OSError:  # it is no file
        return False


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with output.open("wb") as file:
            yield file
    except OSError as error:
        raise ClientError(f"{output}: {error.strerror or error}") from None


def _renderer(
    template: str | None,
    as_json: bool,
    as_base64: bool,
    key_delimiter: str | None,
    delimiter: str,
    null: bool,
    print_offset: bool,
    print_timestamp: bool,
    print_headers: bool,
    *,
    shown: Callable[[bytes], bytes] | None,
) -> Render:
    """The function that formats the records of a batch. `shown` changes the parts that come from records, for a terminal."""
    if as_json:
        from ottla.cli.records.record_json import json_line

        def lines(batch: FetchedBatch) -> Iterator[bytes]:
            for record in batch.records:
                line = json_line(batch.partition, record, batch.timestamp_type, as_base64=as_base64).encode()
                yield (line if shown is None else shown(line)) + b"\n"

        return lines
    from ottla.cli.records.record_format import parse_format

    if template is None:
        template = "%t-%p@%o\\t" if print_offset else ""
        template += "%T\\t" if print_timestamp else ""
        template += "%h\\t" if print_headers else ""
        template += f"%k{key_delimiter.replace('%', '%%')}" if key_delimiter is not None else ""
        template += f"%s{delimiter.replace('%', '%%')}"
    formatted = parse_format(template, null=b"NULL" if null else b"", shown=shown)
    return lambda batch: (formatted(batch.partition, record) for record in batch.records)


def _chosen(cluster: Cluster, topics: tuple[str, ...], partitions: str | None) -> list[TopicPartition]:
    from ottla.cli.options import topic_partitions

    if partitions is None:
        return topic_partitions(cluster, topics)
    return topic_partitions(cluster, [f"{topic.partition(':')[0]}:{','.join(map(str, numbers(partitions)))}" for topic in topics])


# ---- without a group


def _read(
    cluster: Cluster, partitions: list[TopicPartition], offset: str, until: str | None, sink: _Sink, *, quiet: bool, isolation: int
) -> None:
    from ottla.cli.records.consume_range import POLL_SECONDS, limits, start_positions
    from ottla.client.fetcher import Fetcher, FetchSettings

    positions = start_positions(cluster, partitions, offset, isolation)
    bounds = limits(cluster, partitions, until, isolation)
    total = None
    if bounds.offsets is not None:
        total = sum(max(bounds.offsets[name] - positions[name], 0) for name in partitions)
    fetcher = Fetcher(cluster, positions, FetchSettings(isolation=isolation))
    done = 0
    is_drawn = bounds.offsets is not None and not quiet and not sys.stdout.isatty()
    with progress_bar("consuming", total, unit="records", quiet=not is_drawn) as advance:
        try:
            _drop_finished(positions, bounds)
            while positions and not sink.is_full():
                for batch in fetcher.poll(POLL_SECONDS):
                    before = positions.get(batch.partition)
                    sink.write(batch, bounds)
                    done += len(batch.records) if before is not None else 0
                    advance(done)
                    if sink.is_full():
                        break
                    if _is_past(batch, bounds):
                        positions.pop(batch.partition, None)
                sink.flush()
                _drop_finished(positions, bounds)
        finally:
            fetcher.close()


def _drop_finished(positions: dict[TopicPartition, int], bounds: Limits) -> None:
    if bounds.offsets is not None:
        for name in [name for name, position in positions.items() if position >= bounds.offsets[name]]:
            del positions[name]


def _is_past(batch: FetchedBatch, bounds: Limits) -> bool:
    """Whether all following batches are too young. With timestamps of producers an older record may still follow; kcat
    stops here, too."""
    return bounds.time_ms is not None and any(record.timestamp >= bounds.time_ms for record in batch.records)


# ---- in a group


def _member(cluster: Cluster, group: str, topics: tuple[str, ...], instance_id: str | None) -> GroupMember:
    from ottla.client.group_member import GroupMember

    names = topic_names(cluster, topics)
    for name in names:
        cluster.topic(name)
    return GroupMember(cluster, group, names, instance_id=instance_id)


class _Membership:
    """Reads the partitions that the group assigns, and commits the printed offsets."""

    def __init__(
        self, cluster: Cluster, group: str, member: GroupMember, isolation: int, until: str | None, sink: _Sink, *, commits: bool
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._member = member
        self._isolation = isolation
        self._until = until
        self._sink = sink
        self._commits = commits
        self._handled: dict[TopicPartition, int] = {}
        """Offsets up to which records are printed, and not committed yet."""
        self._next_commit = 0.0

    def run(self, settings: object, offset: str, *, quiet: bool) -> None:
        """Read up to the limits. Always leaves the group at the end."""
        from ottla.cli.doctor.kinds import call
        from ottla.client.fetcher import Fetcher, FetchSettings, OffsetGone

        assert isinstance(settings, FetchSettings)
        fetcher = Fetcher(self._cluster, {}, settings)
        try:
            while not self._sink.is_full():
                assigned = self._member.join()
                if not quiet:
                    say(f"group {self._group}: assigned {', '.join(map(str, assigned)) or 'nothing'}")
                positions = self._positions(assigned, offset)
                if positions is None:
                    continue
                fetcher.positions = positions
                if self._read(fetcher):
                    return
        except OffsetGone as gone:  # retention was faster than the group
            topic, partition = gone.partition
            command = call("ottla groups reset-offsets", self._group, f"--topic {topic}:{partition} --to-earliest --execute")
            raise ClientError(f"{gone}; to go on at the first record that is left: {command}") from None
        finally:
            fetcher.close()
            try:
                self._commit()
            finally:
                self._member.leave()

    def _positions(self, assigned: list[TopicPartition], offset: str) -> dict[TopicPartition, int] | None:
        """None if the group rebalances before the transactions with offsets of these partitions have ended."""
        from ottla.cli.records.consume_range import start_positions
        from ottla.client.group_offsets.committed import Committed, UnstableOffsets, committed_offsets

        committed: dict[TopicPartition, Committed] | None = None if assigned else {}
        while committed is None:
            try:
                committed = committed_offsets(self._cluster, self._group, assigned, require_stable=True)
            except UnstableOffsets:
                if not self._member.tend():
                    return None
                time.sleep(_UNSTABLE_SECONDS)
        new = [name for name in assigned if name not in committed]
        positions = start_positions(self._cluster, new, offset, self._isolation) if new else {}
        return {name: committed[name].offset if name in committed else positions[name] for name in assigned}

    def _read(self, fetcher: Fetcher) -> bool:
        """Read until the group rebalances (False), or up to the limits (True)."""
        from ottla.cli.records.consume_range import POLL_SECONDS, limits

        bounds = limits(self._cluster, list(fetcher.positions), self._until, self._isolation)
        self._next_commit = time.monotonic() + _COMMIT_SECONDS
        while True:
            _drop_finished(fetcher.positions, bounds)
            if self._sink.is_full() or (self._until is not None and not fetcher.positions):
                return True
            written: dict[TopicPartition, int] = {}
            for batch in fetcher.poll(POLL_SECONDS):
                written[batch.partition] = self._sink.write(batch, bounds)
                if self._sink.is_full():
                    break
                if _is_past(batch, bounds):
                    fetcher.positions.pop(batch.partition, None)
                if time.monotonic() >= self._next_commit and not self._goes_on(written):
                    return False
            if not self._goes_on(written):
                return False

    def _goes_on(self, written: dict[TopicPartition, int]) -> bool:
        """Take over the offsets that are printed, and commit if it is time. False when the group rebalances."""
        self._sink.flush()  # raises an error if the disk is full, and then nothing of it may be committed
        self._handled |= written
        written.clear()
        if time.monotonic() >= self._next_commit:
            self._commit()
        if self._member.tend():
            return True
        self._commit()
        return False

    def _commit(self) -> None:
        self._next_commit = time.monotonic() + _COMMIT_SECONDS
        handled, self._handled = self._handled, {}
        if handled and self._commits:
            self._member.commit(handled)
