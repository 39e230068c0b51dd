"""Implements `ottla remote restore`: writes the records that a remote store has of a topic to a topic, with the store alone as the source.

It needs neither the metadata of the cluster that copied them nor its brokers. Keys, values, headers, timestamps, partitions and the order
stay. Offsets begin at 0; records of aborted transactions, and markers, are left out.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.options import cluster_command, fail, json_option
from ottla.cli.output import print_json, print_table, say
from ottla.cli.remote.store_access import config_option, the_store
from ottla.client.errors import Refused

if TYPE_CHECKING:
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.cli.remote.stored_logs import StoredLog
    from ottla.client.cluster import Cluster
    from ottla.client.producer import Delivery, Producer
    from ottla.storage.remote.entries import SegmentEntry
    from ottla.storage.remote.record_walk import Batches

_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_COLUMNS: Final = ("partition", "copies", "first", "end", "records", "missing")
Aborted = dict[int, list[tuple[int, int]]]
"""Producer -> the first and the last offset of each of its aborted transactions, in order."""


@click.command()
@click.argument("topic", metavar="TOPIC")
@config_option
@click.option(
    "--to", "target", metavar="TOPIC", help="The topic to write to, by default the same name. It must be empty, and is created if missing."
)
@click.option("--topic-id", metavar="ID", help="The id of the lost topic, if the store has several topics of that name.")
@click.option("--most-epoch", type=click.IntRange(min=0), metavar="EPOCH", help="Leave out copies with records of later leader epochs.")
@click.option("--dry-run", is_flag=True, help="Only show what the store has.")
@json_option
@cluster_command
def restore(
    cluster: Cluster,
    topic: str,
    config_file: Path,
    target: str | None,
    topic_id: str | None,
    most_epoch: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the records that the remote store has of a topic to an empty topic, which is created if it is missing.

    For a topic whose brokers lost their disks. Status 1 if some records of it are missing in the store; all others are written.
    """
    from ottla.config.errors import ConfigError
    from ottla.storage.remote.ports import RemoteStoreError

    try:
        rows = asyncio.run(_restore(cluster, topic, config_file, target or topic, topic_id, most_epoch, dry_run))
    except (ConfigError, RemoteStoreError, ValueError) as error:
        fail([str(error)])
        return
    if as_json:
        print_json(rows)
    else:
        print_table(_COLUMNS, [[len(row[each]) if each == "missing" else row[each] for each in _COLUMNS] for row in rows])
    missing = [f"partition {row['partition']}: {text}" for row in rows for text in row["missing"]]
    if missing:
        fail(missing)


async def _restore(
    cluster: Cluster, topic: str, config_file: Path, target: str, topic_id: str | None, most_epoch: int | None, is_dry: bool
) -> list[dict[str, Any]]:
    """A row for each partition. Raises ConfigError, RemoteStoreError, ValueError, ClientError."""
    from ottla.cli.remote.stored_logs import stored_logs
    from ottla.client.producer import Producer

    async with the_store(config_file) as storage:
        logs = await stored_logs(storage, topic, topic_id, most_epoch)
        if not any(log.copies for log in logs):
            raise ValueError(f"the store has no complete copy of {topic}" + (f": {logs[0].missing[0]}" if logs and logs[0].missing else ""))
        for log in logs:
            for text in log.left_out:
                say(f"partition {log.partition.partition}: left out: {text}")
        if is_dry:
            return [_row(log, 0, log.missing) for log in logs]
        _prepare(cluster, target, 1 + max(log.partition.partition for log in logs))
        with Producer(cluster, target, on_delivery=_end_after_failure) as producer:
            return [await _write(storage, log, producer) for log in logs]


def _prepare(cluster: Cluster, target: str, partitions: int) -> None:
    """Creates the topic if it is missing. Raises ValueError if it has records, or too few partitions."""
    from ottla.client.offsets import end_offsets
    from ottla.client.topic_admin import NewTopic, all_topics, create_topics
    from ottla.protocol.topic_partition import TopicPartition

    found = next((each for each in all_topics(cluster) if each.name == target), None)
    if found is None:
        for error in create_topics(cluster, [NewTopic(target, partitions, configs={"retention.ms": "-1"})]).values():
            if error is not None:
                raise ValueError(str(error))
        say(f"{target} was created with retention.ms=-1, which would remove old records otherwise")
        return
    if len(found.partitions) < partitions:
        raise ValueError(f"{target} has {len(found.partitions)} partitions, and {partitions} are needed")
    ends = end_offsets(cluster, [TopicPartition(target, each.partition_index) for each in found.partitions])
    filled = sorted(str(name) for name, end in ends.items() if end)
    if filled:
        raise ValueError(f"{filled[0]} is not empty: name a new topic by --to, or delete {target} first")
    _tell_of_retention(cluster, target)


def _tell_of_retention(cluster: Cluster, target: str) -> None:
    """Says if a topic that was there would lose the restored records again, which have their old timestamps."""
    from ottla.client.config_admin import ConfigResourceType, describe_configs

    try:
        configs = {each.name: each.value for each in describe_configs(cluster, ConfigResourceType.TOPIC, target)}
    except Refused:  # this client may write to the topic, and not see its configuration
        return
    limits = [f"{name}={configs[name]}" for name in ("retention.ms", "retention.bytes") if configs.get(name) not in (None, "-1")]
    if limits and "delete" in (configs.get("cleanup.policy") or "delete"):
        keep = f"ottla configs alter --set retention.ms=-1 --set retention.bytes=-1 -- topic {quote(target)}"
        say(f"{target} has {' and '.join(limits)}, which removes restored records again; to keep them: {keep}")


def _end_after_failure(delivery: Delivery) -> None:
    """Raises the ClientError of records that the brokers refused: what follows them would have a gap before it."""
    if delivery.error is not None:
        raise delivery.error


async def _write(storage: RemoteStorage, log: StoredLog, producer: Producer) -> dict[str, Any]:
    """Writes one partition, in the order of its offsets. Raises ClientError."""
    from ottla.cli.remote.stored_logs import known_end
    from ottla.storage.remote.ports import RemoteStoreError
    from ottla.storage.remote.record_walk import read_batches

    missing = list(log.missing)
    aborted = await _aborted(storage, log, missing)
    records, end = 0, 0
    next_offset: int | None = None
    for entry in log.copies:
        if next_offset is not None and entry.start_offset > next_offset:
            missing.append(f"offsets {next_offset} to {entry.start_offset - 1} are in no copy")
        reached = max(end, entry.start_offset)
        try:
            async for found in read_batches(entry, storage.store, storage.in_thread):
                batches = [each for each in found if log.has(each[1])]
                for record in _records(batches, reached, aborted):
                    producer.send(record._replace(partition=log.partition.partition))
                    records += 1
                if batches:
                    reached = max(reached, batches[-1][1].next_offset)
                producer.poll(0)
        except RemoteStoreError as error:
            missing.append(f"offsets from {reached} on, in the copy at {entry.start_offset}: {error}")
            end, next_offset = reached, None  # the gap behind is a part of that
        else:
            end = reached
            known = known_end(entry)
            next_offset = max(reached, known) if known is not None else reached if entry.size else None
    producer.flush()
    return _row(log, records, missing) | {"end": end}


def _records(batches: Batches, first: int, aborted: Aborted) -> Iterator[Any]:
    """The records from offset `first` on, without markers and those of aborted transactions."""
    from ottla.client.producer import OutgoingRecord
    from ottla.protocol.records.reader import iter_records

    for _, header, data in batches:
        if header.is_control or header.last_offset < first:
            continue
        if header.is_transactional and _is_aborted(header.base_offset, aborted.get(header.producer_id, ())):
            continue
        for record in iter_records(data):
            if record.offset >= first:
                yield OutgoingRecord(record.value, record.key, record.headers, None, record.timestamp)


def _is_aborted(offset: int, transactions: Sequence[tuple[int, int]]) -> bool:
    """Whether one of the aborted transactions of a producer has the offset. They are in order, and do not overlap."""
    at = bisect_right(transactions, offset, key=itemgetter(0))
    return at > 0 and offset <= transactions[at - 1][1]


async def _aborted(storage: RemoteStorage, log: StoredLog, missing: list[str]) -> Aborted:
    """The aborted transactions of all copies. Appends to `missing` for a copy whose index cannot be read: nothing of its is left out."""
    from ottla.storage.remote.ports import IndexKind, RemoteStoreError

    found: Aborted = {}
    for entry in log.copies:
        try:
            index = await storage.store.index(entry, IndexKind.TRANSACTION)
        except RemoteStoreError as error:
            missing.append(f"aborted transactions of the copy at {entry.start_offset} are not known: {error}")
            continue
        for _, producer, first, last, _ in _TRANSACTION_ENTRY.iter_unpack(
            index[: len(index) // _TRANSACTION_ENTRY.size * _TRANSACTION_ENTRY.size]
        ):
            found.setdefault(producer, []).append((first, last))
    for transactions in found.values():
        transactions.sort()
    return found


def _row(log: StoredLog, records: int, missing: list[str]) -> dict[str, Any]:
    from ottla.cli.remote.stored_logs import known_end

    copies: list[SegmentEntry] = log.copies
    return {
        "partition": log.partition.partition,
        "copies": len(copies),
        "first": copies[0].start_offset if copies else 0,
        "end": known_end(copies[-1]) if copies else None,
        "records": records,
        "missing": missing,
        "left_out": log.left_out,
    }
