"""Implements `ottla remote scrub`: reads every object of the remote store and compares records, indexes, manifests and metadata.

The objects are listed before the metadata are read. An entry is written before its objects, so an object without one has no owner.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.broker.remote.stored_names import stored_name
from ottla.cli.options import Amount, cluster_command, fail, json_option, report_outcomes
from ottla.cli.output import print_json, print_table, say
from ottla.cli.remote.lost_copies import ADVICE, give_up, has_vanished, still_local, vanished
from ottla.cli.remote.removal import remove_orphans
from ottla.cli.remote.store_access import config_option, the_own_store, the_store
from ottla.cli.remote.stored_copies import (
    COLUMNS,
    CopyName,
    as_object,
    as_row,
    chosen,
    copies_in,
    is_named,
    known_copies,
    read_metadata,
    still_read,
)
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.client.cluster import Cluster
    from ottla.storage.remote.entries import SegmentEntry
    from ottla.storage.remote.ports import StoredObject

_MIB: Final = 1 << 20
_SHOWN_ORPHANS: Final = 1000


class Progress:
    """The copies that were found whole, in a file of a line each, so that a scrub that ends early goes on there."""

    def __init__(self, path: Path | None, cluster_id: str) -> None:
        """Raises OSError, and ValueError for a file of another cluster."""
        self._path = path
        self._head = json.dumps({"scrub of cluster": cluster_id})
        self.done: set[str] = set()
        if path is not None and path.exists():
            head, *lines = path.read_text().splitlines() or [""]
            if head and head != self._head:
                raise ValueError(f"{path} is not the progress of a scrub of this cluster: name another file")
            self.done.update(line for line in lines if len(line) == 22)

    def add(self, uuid: str) -> None:
        """Notes a copy."""
        self.done.add(uuid)
        if self._path is not None:
            is_new = not self._path.exists() or not self._path.stat().st_size
            with self._path.open("a") as file:
                file.write(f"{self._head}\n{uuid}\n" if is_new else f"{uuid}\n")

    def end(self) -> None:
        """All copies are whole: the next scrub begins anew."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class Throttle:
    """Limits the bytes that are read in a second."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()

    async def pass_(self, size: int) -> None:
        """Waits until so many bytes may have been read."""
        if self._rate is not None:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            await asyncio.sleep(self._free_at - now)


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@config_option
@click.option("--rate", type=Amount(0.001, 1e6), metavar="MIB", help="Read at most this many MiB a second.")
@click.option(
    "--progress",
    "progress_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Note the copies that are whole in this file, and leave out those that it has. Removed when all are whole.",
)
@click.option("--remove", is_flag=True, help="List the objects of no copy, and remove those of removed copies. Copies are not read.")
@click.option(
    "--copy-again",
    is_flag=True,
    help="Have leaders copy the segments again whose records the store has lost, if they still have them. Copies are not read.",
)
@json_option
@cluster_command
def scrub(
    cluster: Cluster,
    topics: tuple[str, ...],
    config_file: Path,
    rate: float | None,
    progress_file: Path | None,
    remove: bool,
    copy_again: bool,
    as_json: bool,
) -> None:
    """Read all copies that consumers may read, and compare records, indexes and metadata; find objects without an owner.

    The checksum of each batch is verified, and each entry of an index is compared with the records. Status 1 if a copy is missing or
    damaged, or an object belongs to no copy. Nothing is changed without --remove or --copy-again.
    """
    from ottla.config.errors import ConfigError
    from ottla.storage.remote.ports import RemoteStoreError

    if remove and copy_again:
        raise click.UsageError("--remove and --copy-again are two commands")
    cluster_id = cluster.refresh(()).cluster_id or ""
    try:
        if remove or copy_again:
            (_remove if remove else _copy_again)(cluster, topics, config_file, cluster_id, as_json=as_json)
            return
        progress = Progress(progress_file, cluster_id)
        faults, orphans, count = asyncio.run(
            _scrub(cluster, topics, config_file, cluster_id, Throttle(None if rate is None else rate * _MIB), progress)
        )
    except (ConfigError, RemoteStoreError, ValueError, OSError) as error:
        fail([str(error)])
        return
    if as_json:
        damaged = [{**as_object(entry, is_read=True), "faults": found} for entry, found in faults]
        print_json({"copies": count, "damaged": damaged, "orphans": orphans})
    else:
        print_table((*COLUMNS, "fault"), [[*as_row(entry, is_read=True), fault] for entry, found in faults for fault in found])
        for name in orphans[:_SHOWN_ORPHANS]:
            say(f"of no copy: {name}")
        say(f"{count - len(faults)} of {count} copies are whole, {len(orphans)} objects belong to no copy")
    if not faults:
        progress.end()
    if faults or orphans:
        fail([f"damaged copies: {len(faults)}, objects of no copy: {len(orphans)}"])


def _remove(cluster: Cluster, topics: tuple[str, ...], config_file: Path, cluster_id: str, *, as_json: bool) -> None:
    """Lists the objects of no copy, and removes them. Raises ConfigError, RemoteStoreError."""

    async def remove() -> dict[str, str | None]:
        async with the_own_store(config_file, cluster_id) as storage:
            objects = [each async for each in storage.store.list("")]
            described: set[CopyName] = set()
            known = copies_in(read_metadata(cluster, described=described))
            names = set(_orphans(objects, known, topics))
            orphans = [each for each in objects if each.name in names]
            for name in sorted(names):
                say(f"of no copy: {name}")
            return await remove_orphans(storage.store, orphans, described)

    outcomes = asyncio.run(remove())
    stays = {name: None if reason is None else ClientError(f"{name} stays: {reason}") for name, reason in sorted(outcomes.items())}
    report_outcomes(stays.items(), "removed", as_json=as_json)


def _copy_again(cluster: Cluster, topics: tuple[str, ...], config_file: Path, cluster_id: str, *, as_json: bool) -> None:
    """Has leaders make the copies again that have vanished. Raises ConfigError, RemoteStoreError.

    Leaders remove what is left of such a copy. So in the place of their store an empty one of no cluster would cost all copies.
    """

    async def find() -> tuple[list[SegmentEntry], list[SegmentEntry]]:
        async with the_own_store(config_file, cluster_id) as storage:
            known = known_copies(cluster)
            objects = [each async for each in storage.store.list("")]
            wanted = [entry for entry, is_read in known if is_read and chosen(entry, topics)]
            return await vanished(storage.store, objects, wanted), [entry for entry, _ in known]

    found, known = asyncio.run(find())
    read = still_read(cluster, found)
    reasons = give_up(cluster, [entry for entry in found if entry.id in read], known)
    outcomes = {name: None if reason is None else ClientError(f"{name} is not copied again: {reason}") for name, reason in reasons.items()}
    report_outcomes(outcomes.items(), "its leader copies it again", as_json=as_json)


async def _scrub(
    cluster: Cluster, topics: tuple[str, ...], config_file: Path, cluster_id: str, throttle: Throttle, progress: Progress
) -> tuple[list[tuple[SegmentEntry, list[str]]], list[str], int]:
    """Damaged copies with their faults, objects of no copy, and the number of copies.

    Raises ConfigError, also if the store belongs to another cluster, and RemoteStoreError if it does not list its objects.
    """
    from ottla.protocol.uuid import to_text
    from ottla.storage.remote.ports import RemoteStoreError

    async with the_store(config_file, cluster_id) as storage:
        before = [each async for each in storage.store.list("")]
        known = known_copies(cluster)
        orphans = list(_orphans(before, known, topics))
        wanted = [entry for entry, is_read in known if is_read and chosen(entry, topics)]
        faults = []
        gone: list[SegmentEntry] = []
        for entry in wanted:
            uuid = to_text(entry.id.uuid)
            if uuid in progress.done:
                continue
            try:
                found = await _faults_of(storage, entry, throttle)
            except RemoteStoreError as error:
                found = [str(error)]
                with suppress(RemoteStoreError):
                    if await has_vanished(storage.store, entry):
                        gone.append(entry)
            if found:
                faults.append((entry, found))
            else:
                progress.add(uuid)
        read = still_read(cluster, (entry for entry, _ in faults))
        local = still_local(cluster, gone)
        faults = [(entry, [found[0] + ADVICE] if entry.id in local else found) for entry, found in faults if entry.id in read]
        if orphans:  # those that a broker removed meanwhile had an owner
            after = {each.name async for each in storage.store.list("")}
            orphans = [name for name in orphans if name in after]
    return faults, orphans, len(wanted)


async def _faults_of(storage: RemoteStorage, entry: SegmentEntry, throttle: Throttle) -> list[str]:
    """The faults of one copy. Raises RemoteStoreError if it is missing, or its records are not what was copied."""
    from ottla.storage.remote.copy_proof import CopyProof
    from ottla.storage.remote.ports import IndexKind
    from ottla.storage.remote.record_walk import read_batches

    store = storage.store
    indexes = {kind: await store.index(entry, kind) for kind in IndexKind}
    await throttle.pass_(sum(map(len, indexes.values())))
    proof = CopyProof(entry, indexes)
    async for batches in read_batches(entry, store, storage.in_thread):
        proof.add(batches)
        await throttle.pass_(sum(len(data) for _, _, data in batches))
    return proof.faults()


def _orphans(objects: Iterable[StoredObject], known: list[tuple[SegmentEntry, bool]], topics: tuple[str, ...]) -> Iterator[str]:
    """The objects that no entry of the metadata owns; those of the topics that names and patterns stand for, if any are given."""
    from ottla.protocol.uuid import to_text

    owned = {(to_text(entry.id.uuid), entry.start_offset) for entry, _ in known}
    for name in sorted(each.name for each in objects):
        stored = stored_name(name)
        if stored is None:
            if not topics:
                yield name
        elif (stored.uuid, stored.start_offset) not in owned and is_named(stored.topic, topics):
            yield name
