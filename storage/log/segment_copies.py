"""Prepares a closed segment of a log for its copy to a remote store: the names of its files, and the parts that are made for the copy."""

from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.file_names import PRODUCER_SNAPSHOT_SUFFIX, file_name
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.leader_epochs import encode_leader_epochs
from ottla.storage.disk.yielding import yield_to_loop
from ottla.storage.errors import CorruptSnapshot
from ottla.storage.log.producer_replay import replay_batches
from ottla.storage.producers.snapshot import check_snapshot, decode_snapshot, encode_snapshot
from ottla.storage.producers.state_manager import ProducerStateManager
from ottla.storage.remote.lineage import epochs_between
from ottla.storage.remote.memory_budget import READ_COPIES
from ottla.storage.remote.ports import SegmentFiles
from ottla.storage.segment.cold_lookups import LOOKUP_ERRORS, check_time_cached
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog


_REPLAY_COPIES: Final = 20
"""The memory that producers take as objects, in sizes of their snapshot."""


class SegmentToCopy(NamedTuple):
    """A closed segment with offsets below `end_offset`. Its epochs are (epoch, first offset in the segment)."""

    base_offset: int
    end_offset: int
    max_timestamp_ms: int
    size: int
    leader_epochs: list[tuple[int, int]]


def describe_segment(log: "PartitionLog", base_offset: int, end_offset: int, *, may_wait: bool = False) -> SegmentToCopy | None:
    """Describes the closed segment with that base offset, whose files are complete then; None if the log has lost it.

    On the event loop. Raises LogDirFailure, CorruptRecord; and ColdRead if its largest timestamp has to be read from the disk, unless it
    `may_wait`.
    """
    segment = log.segments.floor(base_offset)
    following = log.segments.higher(base_offset)
    if segment is None or segment.base_offset != base_offset or following is None or following.base_offset != end_offset:
        return None
    try:
        log.rolls.finish()
        if not may_wait:
            check_time_cached(segment)
        largest = segment.largest_timestamp
    except LOOKUP_ERRORS as error:
        raise log.files.failed_lookup(error) from error
    epochs = epochs_between(log.leader_epochs.entries, base_offset, end_offset)
    return SegmentToCopy(base_offset, end_offset, largest, segment.size, epochs)


class CopyPreparation:
    """Makes the parts of a copy in a thread (`run`). Made on the event loop, from a log that has the segment."""

    __slots__ = (
        "_bases",
        "_directory",
        "_epochs",
        "_filesystem",
        "_now_ms",
        "_paths",
        "_segment",
        "_settings",
        "_snapshots",
        "_topic_partition",
    )

    def __init__(self, log: "PartitionLog", segment: SegmentToCopy) -> None:
        found = log.segments.floor(segment.base_offset)
        assert found is not None
        self._filesystem: FileSystem = log.context.filesystem
        self._topic_partition: TopicPartition = log.topic_partition
        self._directory = log.directory
        self._settings: LogSettings = log.segments.settings
        self._now_ms = log.context.clock.now_ms()
        self._segment = segment
        self._paths = found.paths
        self._bases = [base for base in log.segments.bases if base < segment.end_offset]
        self._snapshots = [offset for offset in log.producer_state.snapshot_offsets if offset <= segment.end_offset]
        self._epochs = epochs_between(log.leader_epochs.entries, 0, segment.end_offset)

    def memory_bytes(self) -> int:
        """Returns the memory that the parts take while they are made, and copied. Blocks; raises OSError."""
        for offset in reversed(self._snapshots):
            with suppress(FileNotFoundError):
                size = self._filesystem.size(f"{self._directory}/{file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)}")
                return size * (READ_COPIES if offset == self._segment.end_offset else _REPLAY_COPIES)
        return 0

    def run(self) -> SegmentFiles:
        """The files of the segment, its producers, and the leader epochs of the log up to its end. Blocks; raises OSError."""
        log, offset_index, time_index, transactions = self._paths
        return SegmentFiles(
            log,
            offset_index,
            time_index,
            transactions if self._filesystem.exists(transactions) else None,
            self._producers(),
            encode_leader_epochs(self._epochs),
        )

    def _producers(self) -> bytes:
        """The snapshot at the end of the segment. If there is none, as after a conversion from an old release, it is made by replay."""
        manager = ProducerStateManager(self._topic_partition, self._directory, 0, self._filesystem, ())
        start = 0
        for offset in reversed(self._snapshots):
            path = manager.snapshot_path(offset)
            try:
                data = self._filesystem.read_file(path)
                if offset == self._segment.end_offset:
                    check_snapshot(data, path)
                    return data
                entries = decode_snapshot(data, path)
            except (FileNotFoundError, CorruptSnapshot):
                continue
            manager.state.load(entries)
            start = offset
            break
        for base_offset in self._bases[max(bisect_right(self._bases, start) - 1, 0) :]:
            self._replay(manager, base_offset, start)
        return encode_snapshot(manager.state.producers.values())

    def _replay(self, manager: ProducerStateManager, base_offset: int, start: int) -> None:
        segment = Segment(self._filesystem, self._directory, base_offset, self._settings, now_ms=self._now_ms)
        try:
            at = segment.locate(max(start, base_offset))
            if at is not None:
                replay_batches(manager.state, segment, at, segment.size, yield_to_loop)
        except RecordFormatError as error:
            raise OSError(None, f"damaged records: {error}", segment.path) from error
        finally:
            segment.release()
