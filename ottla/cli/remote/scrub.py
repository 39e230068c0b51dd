"""Implements `ottla remote scrub`: reads every object of the remote store and compares records, indexes, manifests and metadata.

The objects are listed before the metadata are read. An entry is written before its objects, so an object without one has no owner.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.options import Amount, cluster_command, fail, json_option
from ottla.cli.output import print_json, print_table, say
from ottla.cli.remote.store_access import config_option, the_store
from ottla.cli.remote.stored_copies import COLUMNS, StoredName, as_object, as_row, chosen, known_copies, still_read, stored_name

if TYPE_CHECKING:
    from ottla.broker.remote.remote_storage import RemoteStorage
    from ottla.client.cluster import Cluster
    from ottla.storage.remote.entries import SegmentEntry

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
@json_option
@cluster_command
def scrub(
    cluster: Cluster, topics: tuple[str, ...], config_file: Path, rate: float | None, progress_file: Path | None, as_json: bool
) -> None:
    """Read all copies that consumers may read, and compare records, indexes and metadata; find objects without an owner.

    The checksum of each batch is verified, and each entry of an index is compared with the records. Nothing is changed. Status 1 if a
    copy is missing or damaged, or an object belongs to no copy.
    """
    from ottla.config.errors import ConfigError
    from ottla.storage.remote.ports import RemoteStoreError

    try:
        progress = Progress(progress_file, cluster.refresh(()).cluster_id or "")
        faults, orphans, count = asyncio.run(
            _scrub(cluster, topics, config_file, Throttle(None if rate is None else rate * _MIB), progress)
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
        fail([f"{len(faults)} copies are damaged, {len(orphans)} objects belong to no copy"])


async def _scrub(
    cluster: Cluster, topics: tuple[str, ...], config_file: Path, throttle: Throttle, progress: Progress
) -> tuple[list[tuple[SegmentEntry, list[str]]], list[str], int]:
    """Damaged copies with their faults, objects of no copy, and the number of copies.

    Raises ConfigError, and RemoteStoreError if the store does not list its objects.
    """
    from ottla.protocol.uuid import to_text
    from ottla.storage.remote.ports import RemoteStoreError

    async with the_store(config_file) as storage:
        before = [name async for name in storage.store.list("")]
        known = known_copies(cluster)
        orphans = list(_orphans(before, known, topics))
        wanted = [entry for entry, is_read in known if is_read and chosen(entry, topics)]
        faults = []
        for entry in wanted:
            uuid = to_text(entry.id.uuid)
            if uuid in progress.done:
                continue
            try:
                found = await _faults_of(storage, entry, throttle)
            except RemoteStoreError as error:
                found = [str(error)]
            if found:
                faults.append((entry, found))
            else:
                progress.add(uuid)
        read = still_read(cluster, (entry for entry, _ in faults))
        faults = [(entry, found) for entry, found in faults if entry.id in read]
        if orphans:  # those that a broker removed meanwhile had an owner
            after = {name async for name in storage.store.list("")}
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


def _orphans(names: Iterable[str], known: list[tuple[SegmentEntry, bool]], topics: tuple[str, ...]) -> Iterator[str]:
    """The objects that no entry of the metadata owns; those of the given topics, if any are given."""
    from ottla.protocol.uuid import to_text

    owned = {(to_text(entry.id.uuid), entry.start_offset) for entry, _ in known}
    for name in sorted(names):
        stored: StoredName | None = stored_name(name)
        if stored is None:
            if not topics:
                yield name
        elif (stored.uuid, stored.start_offset) not in owned and (not topics or stored.topic in topics):
            yield name
