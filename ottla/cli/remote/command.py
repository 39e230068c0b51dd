"""Implements `ottla remote`: shows what `__remote_log_metadata` says of the segments in the remote store (tiered storage)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.options import cluster_command, command_group, fail, has_wildcards, json_option
from ottla.cli.output import print_json, print_table, say
from ottla.cli.remote.gaps import missing_ranges, partitions_of
from ottla.cli.remote.lost_copies import ADVICE, has_vanished, still_local
from ottla.cli.remote.restore import restore
from ottla.cli.remote.scrub import scrub
from ottla.cli.remote.store_access import config_option, the_store
from ottla.cli.remote.stored_copies import COLUMNS, as_object, as_row, chosen, known_copies, still_read
from ottla.storage.remote.lineage import some_ranges

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.storage.remote.entries import SegmentEntry


@command_group
def remote() -> None:
    """Show, check and restore the segments that topics with tiered storage have in the remote store."""


@remote.command(name="list")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--unfinished", is_flag=True, help="Only copies that are not finished, being deleted, or replaced by another copy.")
@json_option
@cluster_command
def list_(cluster: Cluster, topics: tuple[str, ...], unfinished: bool, as_json: bool) -> None:
    """List the copies of segments by topic, partition and offset, also those of deleted topics.

    Consumers read COPY_SEGMENT_FINISHED copies that no other copy replaces. A broker deletes all others after a time.
    """
    found = [(entry, is_read) for entry, is_read in known_copies(cluster) if chosen(entry, topics) and not (unfinished and is_read)]
    if as_json:
        print_json([as_object(entry, is_read=is_read) for entry, is_read in found])
        return
    print_table(COLUMNS, [as_row(entry, is_read=is_read) for entry, is_read in found], empty="no copies of segments")


@remote.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@config_option
@json_option
@cluster_command
def check(cluster: Cluster, topics: tuple[str, ...], config_file: Path, as_json: bool) -> None:
    """Check that the remote store has all segments that consumers may read.

    Of each copy the indexes and the end of the records are read. Status 1 if a copy is missing, shorter than its entry, or cannot be read,
    and if neither a copy nor the leader has some offsets of a log.
    """
    from ottla.config.errors import ConfigError

    known = known_copies(cluster)
    wanted = [entry for entry, is_read in known if is_read and chosen(entry, topics)]
    examined = {entry.id.partition.topic for entry, _ in known if chosen(entry, topics)}
    examined.update(name for name in topics if not has_wildcards(name))  # of which there may be no copy at all
    gaps = missing_ranges(cluster, partitions_of(cluster, sorted(examined)), [entry for entry, _ in known])
    try:
        faults, gone = asyncio.run(_faults(config_file, cluster.refresh(()).cluster_id or "", wanted))
    except ConfigError as error:
        fail([str(error)])
        return
    read = still_read(cluster, (entry for entry, _ in faults))
    local = still_local(cluster, gone)
    faults = [(entry, fault + ADVICE if entry.id in local else fault) for entry, fault in faults if entry.id in read]
    if as_json:
        print_json([{**as_object(entry, is_read=True), "fault": fault} for entry, fault in faults])
    else:
        print_table((*COLUMNS, "fault"), [[*as_row(entry, is_read=True), fault] for entry, fault in faults])
        say(f"{len(wanted) - len(faults)} of {len(wanted)} copies are complete")
    lines = [f"{each.topic}-{each.partition}: no copy and no leader has the offsets {some_ranges(found)}" for each, found in gaps.items()]
    if faults:
        lines.append(f"not complete: {len(faults)} of {len(wanted)}")
    if lines:
        fail(lines)


remote.add_command(scrub)
remote.add_command(restore)


async def _faults(
    config_file: Path, cluster_id: str, entries: list[SegmentEntry]
) -> tuple[list[tuple[SegmentEntry, str]], list[SegmentEntry]]:
    """The copies that are not complete, and why; and those of which the store has no records.

    Raises ConfigError, also if the store belongs to another cluster.
    """
    from ottla.storage.remote.ports import IndexKind, RemoteStoreError

    faults = []
    gone = []
    async with the_store(config_file, cluster_id) as storage:
        for entry in entries:
            try:
                if entry.size:
                    await storage.store.fetch(entry, entry.size - 1, entry.size)
                for kind in IndexKind:
                    await storage.store.index(entry, kind)
            except RemoteStoreError as error:
                faults.append((entry, str(error)))
                with suppress(RemoteStoreError):
                    if await has_vanished(storage.store, entry):
                        gone.append(entry)
    return faults, gone
