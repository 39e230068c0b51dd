"""Cutting a log at its end: methods of `PartitionLog`, kept in a file of their own.

A follower does it when its leader's history differs from its own. Truncating a file can take long; it happens on the event loop because
nothing else may be done to that log meanwhile.
"""

import logging
from typing import TYPE_CHECKING

from storage.file_names import INDEX_SUFFIXES, LOG_SUFFIX, offset_of_file_name
from storage.log_deletion import discard_segments, forget_snapshots
from storage.producer_replay import rebuild_producer_state

if TYPE_CHECKING:
    from storage.partition_log import PartitionLog

log = logging.getLogger(__name__)


def truncate_to(self: "PartitionLog", offset: int) -> bool:
    """Removes every batch that ends at or after `offset`; False if there was none. Raises LogDirFailure."""
    if offset < 0:
        raise ValueError(f"truncation of {self.topic_partition} to offset {offset}")
    try:
        if offset >= self.log_end_offset:
            # There may still be an epoch that begins at the end, of a leader that never wrote.
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self.latest_epoch = self.leader_epochs.latest_epoch
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        log.info("%s: truncated to offset %d, was %d", self.topic_partition, offset, self.log_end_offset)
        self.read_hints.clear()
        now_ms = self.context.clock.now_ms()
        gone = [segment for segment in self.segments if segment.base_offset > offset]
        discard_segments(self, gone)
        _remove_unknown_files(self)
        self.active_segment = self.segments.active
        self.active_segment.truncate_to(offset, now_ms)
        self.producer_state.map_end_offset = self.log_end_offset  # appends do not keep it
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        forget_snapshots(self, gone)
        self.leader_epochs.truncate_from_end(offset)
        self.latest_epoch = self.leader_epochs.latest_epoch
        rebuild_producer_state(self.producer_state, self.segments, self.log_start_offset, offset, now_ms)
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    _after_truncation(self)
    return True


def truncate_fully_and_start_at(self: "PartitionLog", offset: int, log_start_offset: int | None = None) -> None:
    """Removes everything; the log is empty and begins at `offset`. Raises LogDirFailure."""
    log.info("%s: truncated fully, begins at offset %d, ended at %d", self.topic_partition, offset, self.log_end_offset)
    self.read_hints.clear()
    try:
        old = list(self.segments)
        # A log is never without an active segment, not even on the disk: the last old one goes when the new one is there,
        # or just before it when both have the same name.
        discard_segments(self, [segment for segment in old[:-1] if segment.base_offset != offset])
        discard_segments(self, [segment for segment in self.segments if segment.base_offset == offset])
        _remove_unknown_files(self)
        segment = self.new_segment(offset)
        discard_segments(self, [each for each in self.segments if each is not segment])
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.leader_epochs.clear()
        self.leader_epochs.flush()
        self.latest_epoch = None
        self.producer_state.truncate_fully_and_start_at(offset)
        rebuild_producer_state(self.producer_state, self.segments, self.log_start_offset, offset, self.context.clock.now_ms())
    except OSError as error:
        raise self.disk_failure(self.directory, error) from error
    self.high_watermark = offset
    _after_truncation(self)


def _remove_unknown_files(self: "PartitionLog") -> None:
    """A roll that failed half way may have left a segment behind the end; the next start would take it for a part of the log."""
    filesystem = self.context.filesystem
    known = set(self.segments.bases)
    for name in filesystem.list_directory(self.directory):
        offset = offset_of_file_name(name)
        if name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES)) and offset is not None and offset not in known:
            log.warning("%s/%s is no part of the log; deleted", self.directory, name)
            filesystem.unlink(f"{self.directory}/{name}")


def _after_truncation(self: "PartitionLog") -> None:
    for plan in self.flushes:
        plan.recovery_point = min(plan.recovery_point, self.log_end_offset)
    self.next_flush_offset = self.recovery_point + self.settings.flush_messages - 1
    self.high_watermark = max(min(self.high_watermark, self.log_end_offset), self.log_start_offset)
    self.producer_state.state.on_high_watermark(self.high_watermark)
    self.context.on_truncated(self)
