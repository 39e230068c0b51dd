"""Opens the log of a partition, after a clean shutdown or a crash.

`LogManager` calls it for every partition directory at start, and for new partitions. After a clean shutdown the files are trusted. After a
crash every segment from the recovery point on is read and checked, and its indexes and the producer state are rebuilt. The first invalid
batch is cut off with everything behind it, because none of that was flushed.

Invariant: the log returned by `open_log` accepts appends. Every batch that recovery read is complete and has a valid CRC.
"""

import logging
from collections.abc import Sequence

from ottla.config.topic import CLEANUP_POLICY, TopicConfig
from ottla.protocol.records.batch import CONTROL_MASK, BatchHeader, crc_is_valid
from ottla.protocol.records.builder import read_marker
from ottla.protocol.records.errors import RecordFormatError
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import MAX_OFFSET
from ottla.storage.disk.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_of_file_name,
)
from ottla.storage.disk.leader_epochs import LeaderEpochCache
from ottla.storage.disk.partition_metadata import ZERO_UUID, read_topic_id, write_topic_id
from ottla.storage.errors import CorruptIndex, InconsistentTopicId, LogDirFailure, SegmentOffsetOverflow
from ottla.storage.log.context import LogContext
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import PendingTopicId
from ottla.storage.log.producer_replay import rebuild_producer_state, replay_producer
from ottla.storage.producers.state_manager import ProducerStateManager, snapshot_offsets
from ottla.storage.remote.tier import BROKERS_TOPICS, is_tiered, was_tiered
from ottla.storage.segment.batch_scan import header_at, whole_batches
from ottla.storage.segment.leftovers import clean_up_leftovers
from ottla.storage.segment.log_segments import LogSegments
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.split import find_overflowed_segment, has_its_parts, split_overflowed_segment

log = logging.getLogger(__name__)

_WORTH_A_LINE_BYTES = 16 * 1024 * 1024
"""Size of a segment from which checking it is logged; it takes some milliseconds. A broker may have thousands of smaller ones."""
_NEEDED_INDEXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_MOST_RANGES = 10
"""Ranges of missing offsets that a line names."""
_MISSING = (
    "are missing between its segments: a power cut lost them, unless the topic was compacted once; consumers skip them. "
    "If another broker has a replica, stop this broker and move the directory to another place, so that it is fetched again; "
    "otherwise producers have to send the records again"
)
_LOST = "what was on the disk and was damaged there is lost, unless another broker has a replica"


def open_log(
    context: LogContext,
    topic_partition: TopicPartition,
    log_dir: str,
    config: TopicConfig,
    *,
    directory: str | None = None,
    topic_id: bytes = ZERO_UUID,
    is_new: bool = False,
    clean_shutdown: bool = True,
    log_start_offset: int | None = None,
    recovery_point: int = 0,
) -> PartitionLog:
    """The log in `directory` (default: the partition's directory in `log_dir`), created if necessary.

    `log_start_offset` and `recovery_point` come from the checkpoints; the former is None without an entry. `is_new`
    promises an empty or missing directory. Otherwise a given `directory` must exist.

    Raises LogDirFailure, InconsistentTopicId, CorruptCheckpoint. Blocks.
    """
    where = directory or f"{log_dir}/{topic_partition}"
    try:
        if is_new or directory is None:
            context.filesystem.make_directory(where)
        opened = _Loader(context, topic_partition, log_dir, where, config, clean_shutdown, is_new).load(log_start_offset, recovery_point)
        opened.topic_id = _topic_id(context, topic_partition, where, topic_id)
        if opened.topic_id != ZERO_UUID and not clean_shutdown and not opened.size_bytes:
            # The process that wrote it may have been killed before it was durable.
            opened.pending_topic_id = PendingTopicId(opened)
            if topic_partition.topic in BROKERS_TOPICS:
                opened.pending_topic_id.write()
    except OSError as error:
        raise LogDirFailure.of(error, log_dir, where) from error
    except RecordFormatError as error:
        raise LogDirFailure(log_dir, where, str(error)) from error
    return opened


def _topic_id(context: LogContext, topic_partition: TopicPartition, directory: str, topic_id: bytes) -> bytes:
    found = read_topic_id(context.filesystem, directory)
    if found is None:
        if topic_id != ZERO_UUID:
            write_topic_id(context.filesystem, directory, topic_id)
        return topic_id
    if topic_id not in (ZERO_UUID, found):
        raise InconsistentTopicId(topic_partition, topic_id, found)
    return found


class _Loader:
    """Opens one directory."""

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        log_dir: str,
        directory: str,
        config: TopicConfig,
        clean: bool,
        is_new: bool,
    ) -> None:
        self.context = context
        self.filesystem = context.filesystem
        self.topic_partition = topic_partition
        self.log_dir = log_dir
        self.directory = directory
        self.config = config
        self.settings = LogSettings(config)
        self.clean = clean
        self.is_new = is_new
        self.now_ms = context.clock.now_ms()
        self.segments = LogSegments(self.settings)
        self._bases: list[int] = []
        """Base offsets of the segments on the disk, opened or not."""
        self.leader_epochs = LeaderEpochCache(topic_partition, directory, context.filesystem, is_new=is_new)
        # Nothing that recovery finds must be durable before the log is flushed. That saves a start after a crash 10,000 fsyncs.
        self.leader_epochs.on_change = _written_later
        self._flushed_to = MAX_OFFSET
        """Offset below which everything was flushed once."""
        self._epoch = 0  # leader epoch of the last checked batch
        self._checked_to = 0
        """End of the last checked segment."""
        self.log_start_offset = 0
        self._recovered: ProducerStateManager | None = None
        """Producers found by the recovery of the last segment."""
        self._snapshot_offsets: list[int] = []
        """Offsets of the producer snapshots on the disk."""

    def load(self, checkpoint: int | None, recovery_point: int) -> PartitionLog:
        log_start_offset = self.log_start_offset = checkpoint or 0
        if not self.clean:
            self._flushed_to = recovery_point
        epochs_on_disk = self.leader_epochs.entries
        log_end_offset = None if self.is_new else self._find_segments(recovery_point)
        if log_end_offset is None:
            log_end_offset = log_start_offset
            self.segments.add(self._new_segment(log_start_offset))
            recovery_point = min(recovery_point, log_end_offset)
        else:
            # After a crash the recovery point stays at the last flush: batches that were just checked may be in the page cache only.
            recovery_point = log_end_offset if self.clean else min(recovery_point, log_end_offset)
        self.segments.active.become_active()
        self.leader_epochs.truncate_from_end(log_end_offset)
        topic, first = self.topic_partition.topic, self.segments.first.base_offset
        keeps_tier = was_tiered(topic, self.config, checkpoint, first)
        if not keeps_tier and not is_tiered(topic, self.config):
            log_start_offset = max(log_start_offset, first)
        self.leader_epochs.truncate_from_start(log_start_offset)
        producer_state = self._recovered
        if producer_state is None or producer_state.map_end_offset != log_end_offset:
            producer_state = self._producer_state()
        else:
            producer_state.remove_expired_producers(self.now_ms)  # as if the snapshot just taken had been read
        if not self.is_new:
            producer_state.remove_stray_snapshots(self.segments.bases)
            rebuild_producer_state(producer_state, self.segments, log_start_offset, log_end_offset, self.now_ms, clean=self.clean)
        else:
            producer_state.map_end_offset = log_end_offset
        self.leader_epochs.on_change = None
        if self.leader_epochs.entries == epochs_on_disk:
            # Recovery removed the epochs and found them again. That saves writing 10,000 files after a crash.
            self.leader_epochs.is_dirty = False
        return PartitionLog(
            self.context,
            self.topic_partition,
            self.log_dir,
            self.directory,
            self.config,
            segments=self.segments,
            producer_state=producer_state,
            leader_epochs=self.leader_epochs,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            keeps_tier=keeps_tier,
        )

    # ---- finding the segments

    def _find_segments(self, recovery_point: int) -> int | None:
        """Open and check the segments. Returns the log end offset; None if there is no valid segment."""
        while True:
            self._recovered = None
            names = clean_up_leftovers(self.filesystem, self.directory, self.settings, self.now_ms)
            self._snapshot_offsets = snapshot_offsets(names)
            try:
                self._open_segments(names, recovery_point)
                if not self.clean:
                    self._recover_from(recovery_point)
                return self._log_end_offset()
            except SegmentOffsetOverflow as overflow:
                for segment in self.segments:
                    segment.close_without_writing()
                self.segments.clear()
                base_offset, later = overflow.base_offset, self._bases_behind(overflow.base_offset)
                split_overflowed_segment(self.filesystem, self.directory, base_offset, later, self.settings, self.now_ms)

    def _bases_behind(self, base_offset: int) -> list[int]:
        return [base for base in self._bases if base > base_offset]

    def _open_segments(self, names: list[str], recovery_point: int) -> None:
        present = set(names)
        bases = self._bases = [at for name in names if name.endswith(LOG_SUFFIX) if (at := offset_of_file_name(name)) is not None]
        unflushed_from = MAX_OFFSET if self.clean else max((base for base in bases if base <= recovery_point), default=0)
        for name in names:
            offset = offset_of_file_name(name)
            if offset is None:
                continue
            if name.endswith(INDEX_SUFFIXES):
                if file_name(offset, LOG_SUFFIX) not in present:
                    log.warning("%s/%s: an index without a log file; deleted", self.directory, name)
                    self.filesystem.unlink(f"{self.directory}/{name}")
            elif name.endswith(LOG_SUFFIX):
                segment = self._segment(offset)
                if offset < unflushed_from:
                    # The contents of an index are not checked before its first use: a log may have thousands of segments.
                    missing = [suffix for suffix in _NEEDED_INDEXES if file_name(offset, suffix) not in present]
                    if missing or (file_name(offset, TRANSACTION_INDEX_SUFFIX) in present and not self._check_transactions(segment)):
                        log.warning("%s: its index files are missing or wrong; checking it and rebuilding them", segment.path)
                        self._recover_segment(segment, snapshots_stay=True)
                    segment.release()
                self.segments.add(segment)
        overflowed = find_overflowed_segment(list(self.segments), unflushed_from)
        if overflowed is not None:
            raise SegmentOffsetOverflow(overflowed.path, overflowed.base_offset, overflowed.base_offset + MAX_RELATIVE_OFFSET + 1)

    def _check_transactions(self, segment: Segment) -> bool:
        try:
            segment.transaction_index.check()
        except CorruptIndex as error:
            log.warning("%s", error)
            return False
        return True

    def _segment(self, base_offset: int) -> Segment:
        jitter_ms = self.context.roll_jitter_ms(self.settings)
        return Segment(self.filesystem, self.directory, base_offset, self.settings, now_ms=self.now_ms, roll_jitter_ms=jitter_ms)

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(self.filesystem, self.directory, base_offset, self.settings, now_ms=self.now_ms)

    def _producer_state(self) -> ProducerStateManager:
        expiration_ms = self.context.producer_id_expiration_ms
        return ProducerStateManager(self.topic_partition, self.directory, expiration_ms, self.filesystem, self._snapshot_offsets)

    def _log_end_offset(self) -> int | None:
        """The log end offset; None when there is no segment, or none that reaches the log start offset."""
        if not len(self.segments):
            return None
        log_end_offset = self._find_end() if self.clean or self._recovered is None else self._recovered.map_end_offset
        if log_end_offset >= self.log_start_offset:
            return log_end_offset
        log.warning(
            "%s: the log ends at offset %d, below its log start offset %d: segment files were removed; what is left is deleted",
            self.directory,
            log_end_offset,
            self.log_start_offset,
        )
        for segment in list(self.segments):
            segment.delete()
        self.segments.clear()
        self.leader_epochs.clear()
        self.leader_epochs.flush()
        self._producer_state().truncate_fully_and_start_at(self.log_start_offset)
        self._snapshot_offsets = []
        return None

    def _find_end(self) -> int:
        """The end of the active segment, if it was not just checked."""
        active = self.segments.active
        try:
            if self.clean:
                active.check_indexes()
            log_end_offset, end = active.read_end()
        except RecordFormatError:
            end = -1
        if end != active.size:
            log.warning("%s: it does not end with a batch although the log was closed properly; it is checked", active.path)
            self._recover_segment(active)
            log_end_offset, end = active.read_end()
        if log_end_offset - 1 - active.base_offset > MAX_RELATIVE_OFFSET:  # it would roll, and then block the cleaner
            raise SegmentOffsetOverflow(active.path, active.base_offset, log_end_offset - 1)
        return log_end_offset

    # ---- after a crash

    def _recover_from(self, recovery_point: int) -> None:
        unflushed = self.segments.between(recovery_point, MAX_OFFSET)
        missing: list[str] = []
        for at, segment in enumerate(unflushed):
            if at and segment.base_offset > self._checked_to:
                missing.append(f"{self._checked_to} to {segment.base_offset - 1}")
            if segment.size >= _WORTH_A_LINE_BYTES:
                log.info("%s: checking unflushed segment %d of %d, offset %d", self.directory, at + 1, len(unflushed), segment.base_offset)
            torn = self._recover_segment(segment, is_last=segment is unflushed[-1], behind=unflushed[at + 1 :])
            segment.release()  # a log may have more segments than the process may open files
            if torn:
                break
        if missing and "compact" not in self.config[CLEANUP_POLICY]:
            ranges = f"{', '.join(missing[:_MOST_RANGES])}{' and others' if len(missing) > _MOST_RANGES else ''}"
            log.error("%s: the offsets %s %s", self.directory, ranges, _MISSING)

    def _delete_behind(self, segments: Sequence[Segment]) -> None:
        # The last one first. Should this start be killed, the next one finds the torn segment and the first ones behind it, and goes on.
        for segment in reversed(segments):
            log.warning(
                "%s: %d bytes from offset %d on follow what was cut and are deleted with it",
                segment.path,
                segment.size,
                segment.base_offset,
            )
            self.segments.remove(segment)
            segment.delete()
        if segments:
            # Some file systems may restore the files after a power cut, although the records that replace them were synced.
            self.filesystem.sync_directory(self.directory)

    def _recover_segment(
        self, segment: Segment, *, is_last: bool = False, snapshots_stay: bool = False, behind: Sequence[Segment] = ()
    ) -> int:
        """Check every batch, rebuild the indexes, cut off invalid bytes. Returns their number. If there are any, first delete the segments
        `behind`: once the segment is cut, nothing shows that they do not continue it.

        The indexes of the last segment keep their preallocated size for appends. With `snapshots_stay` the later segments and their
        producer snapshots were flushed and stay.
        """
        manager = self._producer_state()
        later = manager.set_aside(segment.base_offset) if snapshots_stay else []
        rebuild_producer_state(manager, self.segments, self.log_start_offset, segment.base_offset, self.now_ms)
        segment.begin_rebuild()
        segment.transaction_index.reset()
        valid_bytes = last_entry = 0
        next_offset = segment.base_offset
        reason = "incomplete"
        try:
            for position, header, chunk, at in whole_batches(segment.file, segment.size):
                reason = _fault(header, next_offset) or ("" if crc_is_valid(chunk, at) else "its CRC is wrong")
                if header.base_offset > next_offset and not reason and not header.is_message:
                    reason = self._gap_fault(segment, position, header, next_offset)
                if reason:
                    break
                if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                    # No CRC covers the base offset. It is damaged unless the next segment begins behind it, or contains the batch, too.
                    bases = self._bases_behind(segment.base_offset)
                    if bases and (header.last_offset < bases[0] or has_its_parts(segment, bases)):
                        raise SegmentOffsetOverflow(segment.path, segment.base_offset, header.last_offset)
                    reason = f"its last offset {header.last_offset} cannot be"
                    break
                last_entry = segment.index_batch(position, header, last_entry)
                if header.producer_id >= 0:
                    marker = read_marker(chunk, at, header) if header.attributes & CONTROL_MASK else None
                    replay_producer(manager.state, segment, header, marker, header.base_offset)
                if header.partition_leader_epoch >= self._epoch:
                    self._epoch = header.partition_leader_epoch
                    self.leader_epochs.on_recovered(self._epoch, header.base_offset, header.last_offset)
                valid_bytes = position + header.size
                next_offset = header.next_offset
                reason = "incomplete"
        except RecordFormatError as error:
            reason = str(error)
        segment.write_out_transactions()
        torn = segment.size - valid_bytes
        if torn:
            log.warning(
                "%s: %d bytes from byte %d on, after offset %d, are torn (%s); cut, %s",
                segment.path,
                torn,
                valid_bytes,
                next_offset - 1,
                reason,
                _LOST if next_offset < self._flushed_to else "nothing acknowledged after a flush is lost",
            )
            self._delete_behind(behind)
            segment.cut_at(valid_bytes)
        if not is_last:
            segment.finish_rebuild()
        manager.map_end_offset = self._checked_to = next_offset
        if not snapshots_stay:
            manager.take_snapshot(sync=False)
        self._snapshot_offsets = manager.snapshot_offsets + later
        self._recovered = manager if is_last or (torn and not snapshots_stay) else None
        return torn

    def _gap_fault(self, segment: Segment, position: int, header: BatchHeader, next_offset: int) -> str:
        """The fault of a batch that skips offsets, as compaction does; empty if it is plausible.

        No CRC covers the base offset, but the following batch must continue after it. A batch without a following one is accepted: a
        flipped bit is rarer than a killed process.
        """
        try:
            following = header_at(segment.file, position + header.size, segment.size)
        except RecordFormatError:
            following = None
        later = self._bases_behind(segment.base_offset) if following is None else [following.base_offset]
        if min(later, default=MAX_OFFSET) > header.last_offset:
            return ""
        return f"its offset {header.base_offset} is not {next_offset}, which has to follow"


def _fault(header: BatchHeader, next_offset: int) -> str:
    if header.base_offset < next_offset:
        return f"its offset {header.base_offset} is below {next_offset}, which has to follow"
    if header.last_offset_delta < 0:
        return f"its last offset {header.last_offset} cannot be"
    return ""


def _written_later(_: LeaderEpochCache) -> None:
    """Do nothing: the caller that opens the log writes changed epochs."""
