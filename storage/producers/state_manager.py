"""Keeps the producers of one partition, and the snapshot files that preserve them over a restart.

`PartitionLog` owns one per partition. Recovery loads it from the newest valid snapshot and replays the log from there. A snapshot
`<offset>.snapshot` belongs to the segment that begins at that offset. A clean stop writes one at the log end offset, so that the next start
need not read the log.

A snapshot of many producers takes long: 50 ms for 100,000. In that case `begin_snapshot`, which the log calls when it rolls, leaves the
writing to a thread, which works piece by piece. Meanwhile the producers of the snapshot are frozen, and changes are made to copies. If the
log rolls again before the snapshot is written, a second snapshot waits. If it rolls a third time, the waiting one is skipped.

Invariants: `state` covers the log below `map_end_offset`. A snapshot file is complete, or its CRC is wrong (it is written in place, as in
Kafka). One snapshot at a time is being written, and no earlier one is removed from the disk meanwhile. The log sets `map_end_offset` before
it calls `take_snapshot`, `begin_snapshot` or `truncate_and_reload`; the append path does not set it.
"""

import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.errors import CorruptSnapshot
from ottla.storage.producers.snapshot import SnapshotWrite, decode_snapshot, encode_snapshot
from ottla.storage.producers.state import ProducerState, ProducerStateEntry, is_expired
from ottla.storage.producers.verification import remove_expired_verifications

log = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
WRITTEN_AT_ONCE = 500
"""Producers up to which a snapshot takes less than half a millisecond, and so is written at once."""
_OFFSET_DIGITS = 20


class ProducerStateManager:
    """`ProducerState` with its snapshots in `directory`."""

    __slots__ = (
        "_fs",
        "_last_snapshot_offset",
        "_offsets",
        "_waiting",
        "directory",
        "map_end_offset",
        "producer_id_expiration_ms",
        "state",
        "unsafe_below",
        "writing",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        producer_id_expiration_ms: int,
        filesystem: FileSystem,
        snapshot_offsets: Iterable[int],
    ) -> None:
        """`snapshot_offsets` are the offsets of the snapshot files in the directory, ascending."""
        self.state = ProducerState(topic_partition)
        self.directory = directory
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.map_end_offset = 0
        self._fs = filesystem
        self._last_snapshot_offset = 0
        self._offsets = list(snapshot_offsets)
        self.writing: SnapshotWrite | None = None
        """The unfinished snapshot."""
        self._waiting: tuple[int, File] | None = None
        """Offset and empty file of the next snapshot, which waits for the unfinished one."""
        self.unsafe_below = 0
        """Offset below which a segment has no snapshot. Before the log is flushed up to it, no segment may be deleted, because recovery of
        the remaining ones would lack a snapshot."""

    def use_filesystem(self, filesystem: FileSystem) -> None:
        """Reach the snapshots through another `FileSystem` from now on."""
        self._fs = filesystem

    @property
    def snapshot_offsets(self) -> list[int]:
        """Offsets of the snapshot files, ascending."""
        return list(self._offsets)

    @property
    def latest_snapshot_offset(self) -> int | None:
        """Offset of the newest snapshot file."""
        return self._offsets[-1] if self._offsets else None

    def newest_snapshot_up_to(self, offset: int) -> str | None:
        """Path of the newest snapshot at or below `offset`; None if there is none."""
        at = bisect_right(self._offsets, offset)
        return self.snapshot_path(self._offsets[at - 1]) if at else None

    def snapshot_path(self, offset: int) -> str:
        """Path of the snapshot at `offset`, whether it exists or not."""
        return f"{self.directory}/{offset:0{_OFFSET_DIGITS}d}{SNAPSHOT_SUFFIX}"

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Fit the state to a log of `[log_start_offset, log_end_offset]`: delete snapshots outside, and load the newest remaining one.

        Afterwards the caller replays the log from `map_end_offset` on. A state that already ends at `log_end_offset` is kept.
        """
        for offset in [offset for offset in self._offsets if offset > log_end_offset or offset <= log_start_offset]:
            self.delete_snapshot(offset)
        self.unsafe_below = min(self.unsafe_below, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self.state.clear()
        self._load(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all producers and delete all snapshots."""
        self.state.clear()
        for snapshot in self.snapshot_offsets:
            self.delete_snapshot(snapshot)
        self._last_snapshot_offset = self.unsafe_below = 0
        self.map_end_offset = offset

    def take_over(self, offset: int, entries: Iterable[ProducerStateEntry], now_ms: int) -> None:
        """Use the producers of a snapshot that was written at `offset`, where the log begins and ends."""
        self.state.load(each for each in entries if not is_expired(each, now_ms, self.producer_id_expiration_ms))
        self.map_end_offset = offset
        self._has_snapshot(offset)

    def start_with(self, snapshot: bytes, now_ms: int) -> None:
        """Use the producers of a snapshot of another replica, and keep it, at `map_end_offset`, where the log begins and ends.

        Blocks. Raises OSError, CorruptSnapshot.
        """
        path = self.write_snapshot(self.map_end_offset, snapshot, sync=True)
        self.take_over(self.map_end_offset, decode_snapshot(snapshot, path), now_ms)

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Write a snapshot at `map_end_offset` and return its path; None if it exists already.

        Without `sync` the caller must sync the file later.
        """
        self.finish_snapshot()
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self.write_snapshot(offset, encode_snapshot(self.state.producers.values()), sync=sync)
        self._has_snapshot(offset)
        return path

    def encode_snapshot(self) -> bytes | None:
        """A snapshot at `map_end_offset`, which the caller must pass to `write_snapshot` before it is needed.

        None if it exists already, or if `begin_snapshot` has begun it.
        """
        if self.writing is not None or self.map_end_offset <= self._last_snapshot_offset:
            return None
        self._has_snapshot(self.map_end_offset)
        return encode_snapshot(self.state.producers.values())

    def write_snapshot(self, offset: int, data: bytes, *, sync: bool = False) -> str:
        """Write the snapshot at `offset` and return its path."""
        path = self.snapshot_path(offset)
        file = self._fs.open(path, create=True)
        try:
            file.write(data)
            if file.size() > len(data):
                file.truncate(len(data))
            if sync:
                file.sync()
        finally:
            file.close()
        return path

    def begin_snapshot(self) -> SnapshotWrite | None:
        """Begin a snapshot of many producers at `map_end_offset`; None if there are few.

        The caller has a thread run the returned object, and then calls `end_snapshot`. A crash before that finds only the older snapshots.
        If a snapshot is being written already, returns None, and `end_snapshot` begins the second one. One snapshot at a time waits; a
        further one replaces it (see `unsafe_below`).
        """
        if self.writing is None and len(self.state.producers) <= WRITTEN_AT_ONCE:
            return None
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        # Opened now: when a thread gets to it, the directory may have another name, and another directory this name.
        file = self._fs.open(self.snapshot_path(offset), create=True)
        self._has_snapshot(offset)
        frozen = self.state.freeze()
        if frozen is not None:
            self.writing = SnapshotWrite(file, frozen)
            return self.writing
        if self._waiting is not None:
            passed_over, unused = self._waiting
            self.unsafe_below = offset
            unused.close()
            self.delete_snapshot(passed_over)
        self._waiting = offset, file
        return None

    def end_snapshot(self) -> SnapshotWrite | None:
        """Complete the snapshot that is being written. Begins and returns the waiting one, if any.

        Blocks unless the snapshot is written already. May raise OSError; then no snapshot is left, unfinished or waiting. After any other
        error both are left, and may be completed later.
        """
        writing, self.writing = self.writing, None
        waiting, self._waiting = self._waiting, None
        if writing is None:
            return None
        try:
            writing.run()
        except OSError:
            while self.state.unfreeze() is not None:
                pass
            raise
        except Exception:
            self.writing, self._waiting = writing, waiting
            raise
        frozen = self.state.unfreeze()
        if frozen is not None and waiting is not None:
            self.writing = SnapshotWrite(waiting[1], frozen)
        return self.writing

    def finish_snapshot(self) -> None:
        """Complete all unfinished snapshots. Blocks; may raise OSError."""
        while self.writing is not None:
            self.end_snapshot()

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Adapt to a new log start offset: markers below it need no replication any more."""
        self.state.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def remove_expired_producers(self, now_ms: int, producer_ids: Iterable[int] | None = None) -> int:
        """Drop producers that were idle for `producer.id.expiration.ms` and have no open transaction. Returns their number.

        Considers only `producer_ids`, if given.
        """
        return self.state.remove_expired(now_ms, self.producer_id_expiration_ms, producer_ids)

    def remove_expired_verifications(self, now_ms: int) -> None:
        """Ends the verifications that no batch followed for `producer.id.expiration.ms`."""
        remove_expired_verifications(self.state.verifications, now_ms, self.producer_id_expiration_ms)

    def read_snapshot(self, offset: int) -> bytes:
        """Returns the content of the snapshot at `offset`; nothing if there is none that is whole. Blocks; raises OSError."""
        path = self.snapshot_path(offset)
        try:
            data = self._fs.read_file(path)
            decode_snapshot(data, path)
        except (FileNotFoundError, CorruptSnapshot):
            return b""
        return data

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Delete snapshots without a segment, except the newest if it is behind all segments: a clean stop wrote that one."""
        strays = sorted(set(self._offsets).difference(segment_base_offsets))
        if strays and (not segment_base_offsets or strays[-1] >= max(segment_base_offsets)):
            strays.pop()
        for offset in strays:
            self.delete_snapshot(offset)

    def forget_snapshot(self, offset: int) -> str | None:
        """Forget the snapshot at `offset` and return its path, for the caller to delete later; None if there is none."""
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets) or self._offsets[at] != offset:
            return None
        del self._offsets[at]
        return self.snapshot_path(offset)

    def set_aside(self, offset: int) -> list[int]:
        """Forget the snapshots above `offset`, and leave their files. Returns their offsets, ascending."""
        at = bisect_right(self._offsets, offset)
        later = self._offsets[at:]
        del self._offsets[at:]
        return later

    def delete_snapshot(self, offset: int) -> None:
        """Delete the snapshot at `offset`, if it exists."""
        path = self.forget_snapshot(offset)
        if path is not None and self._fs.exists(path):
            self._fs.unlink(path)

    def _load(self, log_start_offset: int, now_ms: int) -> None:
        while self._offsets:
            offset = self._offsets[-1]
            path = self.snapshot_path(offset)
            try:
                entries = self._read(path, now_ms)
            except CorruptSnapshot as error:
                log.warning("%s; deleting it and rebuilding producer state from an older snapshot or the log", error)
                self.delete_snapshot(offset)
                continue
            self.state.load(entries)
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def _read(self, path: str, now_ms: int) -> list[ProducerStateEntry]:
        entries = decode_snapshot(self._fs.read_file(path), path)
        return [entry for entry in entries if not is_expired(entry, now_ms, self.producer_id_expiration_ms)]

    def _has_snapshot(self, offset: int) -> None:
        self._last_snapshot_offset = offset
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets) or self._offsets[at] != offset:
            insort(self._offsets, offset)


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among the files, ascending."""
    stems = [name.removesuffix(SNAPSHOT_SUFFIX) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())
