"""Keeps snapshots of metadata partitions as files `remote-log-metadata-<partition>.snapshot` in the first log directory.

They are files and no folder, because Apache Kafka does not start with a folder that it does not know in a log directory. A snapshot that is
lost or disagrees costs time alone. `storage.remote.metadata.snapshot` describes the content.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from typing import Final

from ottla.storage.disk.clock import Clock
from ottla.storage.disk.file_names import TEMPORARY_SUFFIX
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.remote.metadata.log import MetadataLog
from ottla.storage.remote.metadata.snapshot import Snapshot, SnapshotIdentity, SnapshotUnusable, decode_snapshot, encode_snapshot

logger = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 60.0
LEAST_RECORDS: Final = 1_000
"""Records after the last snapshot from which on another is worth its writing, if they are also an eighth of the entries."""
_PIECE_BYTES: Final = 1 << 20


class SnapshotFiles:
    """See the module."""

    def __init__(
        self, log_dir: str, filesystem: FileSystem, workers: Executor, clock: Clock, cluster_id: str, partition_count: int
    ) -> None:
        self._log_dir = log_dir
        self._fs = filesystem
        self._workers = workers
        self._clock = clock
        self._cluster_id = cluster_id
        self._partition_count = partition_count
        self._saved: dict[int, tuple[float, int]] = {}
        """By metadata partition, the time of the last snapshot and its offset."""

    def path(self, index: int) -> str:
        """Returns the path of the snapshot of a metadata partition."""
        return f"{self._log_dir}/remote-log-metadata-{index}.snapshot"

    async def load(self, topic_id: bytes, index: int) -> Snapshot | None:
        """Reads the snapshot of a metadata partition. None if there is none that can be used."""
        path = self.path(index)
        try:
            pieces = await asyncio.get_running_loop().run_in_executor(self._workers, self._read, path)
            snapshot = await decode_snapshot(pieces, self._identity(topic_id, index))
            while pieces:
                await asyncio.sleep(0)
                pieces.pop()  # in a turn of its own: the allocator gives several of them back at once, in 0.8 ms
        except FileNotFoundError:
            return None
        except SnapshotUnusable as reason:
            logger.warning("%s is not used, so all of the partition is read: %s", path, reason)
            return None
        except OSError as error:
            logger.warning("%s cannot be read, so all of the partition is read: %s", path, error)
            return None
        self._saved[index] = self._clock.monotonic(), snapshot.offset
        return snapshot

    def is_due(self, log: MetadataLog) -> bool:
        """Tells if enough is new since the last snapshot."""
        now = self._clock.monotonic()
        saved_at, offset = self._saved.setdefault(log.index, (now, 0))
        if log.position - offset < LEAST_RECORDS or now - saved_at < INTERVAL_SECONDS or log.is_behind:
            return False
        return log.position - offset >= sum(len(each.cache) for each in log.followed.values()) // 8

    async def save(self, topic_id: bytes, log: MetadataLog) -> None:
        """Writes a snapshot if the log knows more than the last one. The log must not change meanwhile."""
        _, offset = self._saved.get(log.index, (0.0, 0))
        if log.is_behind or log.position == offset:
            return
        path, position = self.path(log.index), log.position
        snapshot = Snapshot(position, log.last_epoch, [each.cache for each in log.followed.values()])
        parts = await encode_snapshot(self._identity(topic_id, log.index), snapshot)
        self._saved[log.index] = self._clock.monotonic(), position
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, self._write, path, parts)
        except OSError as error:
            logger.warning("%s cannot be written: %s", path, error)

    def _read(self, path: str) -> list[bytes]:
        """Reads a file in pieces: to copy or to free all of it at once would stop the event loop for milliseconds."""
        file = self._fs.open(path, read_only=True)
        try:
            starts = range(0, file.size(), _PIECE_BYTES)
            return [file.pread(_PIECE_BYTES, start) for start in starts]
        finally:
            file.close()

    def _write(self, path: str, parts: list[bytes]) -> None:
        """Writes a file, and frees each of the parts as soon as it is written."""
        parts.reverse()
        temporary = path + TEMPORARY_SUFFIX
        file = self._fs.open(temporary, create=True)
        try:
            file.truncate(0)
            while parts:
                file.write(parts.pop())
        finally:
            file.close()
        self._fs.rename(temporary, path)

    def _identity(self, topic_id: bytes, index: int) -> SnapshotIdentity:
        return SnapshotIdentity(self._cluster_id, topic_id, self._partition_count, index)
