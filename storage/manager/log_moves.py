"""Copies logs from one log directory to another while they are in use: Kafka's ReplicaAlterLogDirsManager and its
threads.

Owned by `LogManager`; `ReplicaManager` starts and stops the copying of a partition with a future log. Threads read the
current log in chunks, and the event loop appends them to the future log. The last chunk is copied in one turn, so that
the future log can replace the current one in the same turn. `num.replica.alter.log.dirs.threads` copies run at a time,
together at most `replica.alter.log.dirs.io.max.bytes.per.second`.

Invariants: a future log is always a prefix of its current log, because it is cut whenever the current log is cut. It replaces the current
log only with the same log end offset, and when at least as much of it is durable. So no flushed record is lost. After the directory of one
of the two logs has failed, the future log never replaces the current one: the replaced log is deleted, and may be the only usable one.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.config.broker import BrokerConfig
from ottla.config.keys.quotas import REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND
from ottla.config.keys.replication import NUM_REPLICA_ALTER_LOG_DIRS_THREADS
from ottla.config.schema.key import LONG_MAX
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.background import Background
from ottla.storage.disk.checkpoint import replace_file
from ottla.storage.disk.clock import Clock
from ottla.storage.errors import (
    LogClosed,
    LogDirFailure,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    StorageError,
    UnexpectedAppendOffset,
)
from ottla.storage.log.flushes import FlushPlan
from ottla.storage.log.origins import REPLICATION
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.pending_topic_id import make_durable
from ottla.storage.log.truncations import RemoteRecords
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.storage.remote.lineage import epochs_between
from ottla.storage.remote.tier import OTHER_LOG
from ottla.storage.segment.file_region import FileRegion
from ottla.storage.validation.run import BatchRun

if TYPE_CHECKING:
    from ottla.storage.manager.log_manager import LogManager

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
"""Bytes that the loop appends in one step: about 0.15 ms."""

_NAME = "alter-log-dirs"
_BACKOFF_MS = 1000
_POLL_MS = 5
_ANY_EPOCH = 2**31 - 1
"""Larger than any leader epoch, because a batch of the current log may have any of them."""


class Move:
    """One partition being moved. `current` and `future` are its logs."""

    __slots__ = ("current", "cuts", "future", "has_marker", "is_stopped", "producers", "was_flushed")

    def __init__(self, current: PartitionLog, future: PartitionLog) -> None:
        self.current = current
        self.future = future
        self.is_stopped = False
        self.was_flushed = False
        self.has_marker = False
        """Whether the directory of the future log has the file OTHER_LOG if that of the current log has it."""
        self.producers: tuple[int, bytes] | None = None
        """The local log start offset of the current log, and the producers of the records before it: a snapshot, or nothing."""
        self.cuts = 0
        """Number of truncations: data that was read before one is not appended after it."""


class LogMoves:
    """All moves of a broker."""

    def __init__(self, manager: "LogManager", config: BrokerConfig, clock: Clock, background: Background) -> None:
        self.on_replaced: Callable[[PartitionLog], None] = _ignore
        """Called with the log that has replaced another."""
        self._manager = manager
        self._config = config
        self._clock = clock
        self._background = background
        self._moves: dict[TopicPartition, Move] = {}
        self._waiting: deque[Move] = deque()
        self._failed: set[str] = set()
        """Log directories that failed, also those whose partitions are still being taken offline."""
        self._at_work = 0
        self._limit = LONG_MAX
        self._free_at_ms = 0.0
        """Time at which the throttle permits the next chunk."""

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._moves

    # ---- calls of the replica manager

    def start(self, topic_partition: TopicPartition) -> None:
        """Copies the partition if it has a future log, from the end of its agreement with the current log. Called again
        after each new leader epoch.

        Raises LogDirFailure.
        """
        current, future = self._manager.get(topic_partition), self._manager.get(topic_partition, future=True)
        if current is None or future is None or not self._failed.isdisjoint((current.log_dir, future.log_dir)):
            return
        if current.log_dir == future.log_dir:
            # This broker never creates one there. A rename to a non-empty directory would fail, and would be taken for
            # a disk failure.
            log.error("%s: it cannot move: %s is in the same log directory", topic_partition, future.directory)
            return
        if not self._manager.future_logs.check_topic(topic_partition):
            return
        move = self._moves.get(topic_partition)
        if move is not None and (move.current is not current or move.future is not future):
            self.stop(topic_partition)
            move = None
        if move is None:
            move = self._moves[topic_partition] = Move(current, future)
            self._manager.cleaner.pause_cleaning(topic_partition, "it is being moved to another log directory")
            self._waiting.append(move)
        cut = _end_of_agreement(current, future)
        if cut < future.log_end_offset:
            self._cut(move, cut)
        self._pump()

    def stop(self, topic_partition: TopicPartition) -> None:
        """Stops the copying; the future log remains. Does nothing if the partition is not being moved."""
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.is_stopped = True
            self._release_flushes(move)
            self._manager.cleaner.resume_cleaning(topic_partition)

    def on_truncated(self, each: PartitionLog) -> None:
        """A log was cut at its end: cuts the log that is to replace it."""
        move = self._moves.get(each.topic_partition)
        if move is not None and move.current is each:
            self._cut(move, each.log_end_offset)

    def _cut(self, move: Move, offset: int) -> None:
        """Cuts the future log, in a thread; copying pauses meanwhile."""
        move.cuts += 1
        if move.future.log_end_offset > offset:
            move.future.truncations.truncate_in_thread(offset, lambda error: self._on_cut(move, error))

    def _on_cut(self, move: Move, error: Exception | None) -> None:
        if isinstance(error, LogDirFailure):
            self._fail(move, error)
        elif error is not None and not isinstance(error, LogClosed) and move.future.truncations.current is None:
            log.error("%s: %s; the move to %s ends", move.current.topic_partition, error, move.future.log_dir)
            self.stop(move.current.topic_partition)

    def on_log_dir_failure(self, log_dir: str) -> None:
        """Ends the moves from and to the directory, and begins none any more."""
        self._failed.add(log_dir)
        for topic_partition, move in list(self._moves.items()):
            source, target = move.current.log_dir, move.future.log_dir
            if log_dir in (source, target):
                log.error(
                    "%s: the move from %s to %s ends, because %s failed",
                    topic_partition,
                    move.current.log_dir,
                    move.future.log_dir,
                    log_dir,
                )
                self.stop(topic_partition)

    # ---- slots

    def _pump(self) -> None:
        slots = self._config[NUM_REPLICA_ALTER_LOG_DIRS_THREADS] or len(self._manager.directories.all)
        while self._waiting and self._at_work < slots:
            move = self._waiting.popleft()
            if not move.is_stopped:
                self._at_work += 1
                self._step(move)

    def _release(self) -> None:
        self._at_work -= 1
        self._pump()

    def _later(self, move: Move, delay_ms: int) -> None:
        self._background.schedule(_NAME, delay_ms, 0, lambda: self._step(move))

    def _retry(self, move: Move) -> None:
        """Tries the move again later, and gives its slot to another one meanwhile: the reason may be there for long."""
        self._release_flushes(move)
        self._background.schedule(_NAME, _BACKOFF_MS, 0, lambda: self._wait_again(move))
        self._release()

    def _retry_after_fault(self, move: Move, fault: BaseException) -> None:
        """Tries again after a fault of this broker. Otherwise the slot would never be free again."""
        log.error("%s: the move to %s failed; it will be retried", move.current.topic_partition, move.future.log_dir, exc_info=fault)
        self._retry(move)

    def _wait_again(self, move: Move) -> None:
        if not move.is_stopped:
            self._waiting.append(move)
            self._pump()

    # ---- copying

    def _step(self, move: Move) -> None:
        """The next step of a move that has a slot."""
        if move.is_stopped:
            self._release()
            return
        try:
            self._copy_or_finish(move)
        except LogClosed:
            self.stop(move.current.topic_partition)
            self._release()
        except LogDirFailure as failure:
            self._fail(move, failure)
            self._release()
        except StorageError as error:
            log.error("%s: %s; the move to %s will be retried", move.current.topic_partition, error, move.future.log_dir)
            self._retry(move)
        except Exception as fault:
            self._retry_after_fault(move, fault)

    def _copy_or_finish(self, move: Move) -> None:
        current, future = move.current, move.future
        for each in (current, future):
            if each.truncations.current is not None:
                if each.truncations.current.error is None:
                    self._later(move, _POLL_MS)
                else:
                    self._retry(move)  # the log is unusable until a repetition of the truncation succeeds
                return
        if future.log_end_offset == current.log_end_offset:
            self._finish(move)
            return
        if future.pending_topic_id is not None:
            self._background.submit(_NAME, partial(make_durable, future), partial(self._on_topic_id, move))
            return
        wait_ms = self._throttle_ms()
        if wait_ms > 0:
            self._release_flushes(move)
            self._later(move, wait_ms)
            return
        end_offset = current.log_end_offset
        try:
            found = current.read(future.log_end_offset, min(CHUNK_BYTES, future.segments.settings.segment_bytes), end_offset, True)
        except OffsetOutOfRange:
            # Records were deleted before they were copied.
            move.cuts += 1
            future.truncations.truncate_fully_in_thread(current.log_start_offset, lambda error: self._on_cut(move, error))
            self._later(move, 0)
            return
        except OffsetMovedToTieredStorage:
            self._begin_behind_remote(move)
            return
        region = found.region
        if region is None:
            self._retry(move)
        elif found.next_offset >= end_offset and region.is_cached():
            self._append(move, _read(current, region))
            # it may have stopped by a flush that became due and failed
            if future.log_end_offset == current.log_end_offset and not move.is_stopped:
                self._finish(move)
            else:
                self._later(move, 0)
        else:
            self._read_in_thread(move, region)

    def _on_topic_id(self, move: Move, error: BaseException | None) -> None:
        if isinstance(error, LogDirFailure):
            self._fail(move, error)
        elif error is not None and not isinstance(error, LogClosed):
            self._retry_after_fault(move, error)
            return
        self._step(move)

    def _read_in_thread(self, move: Move, region: FileRegion) -> None:
        data: list[bytes] = []
        cuts = move.cuts

        def then(error: BaseException | None) -> None:
            if isinstance(error, LogDirFailure):
                self._fail(move, error)
            elif error is not None and not isinstance(error, LogClosed):
                self._retry_after_fault(move, error)
                return
            elif error is None and not move.is_stopped and move.cuts == cuts:
                try:
                    self._append(move, data[0])
                except LogDirFailure as failure:
                    self._fail(move, failure)
                except StorageError as problem:
                    log.error("%s: %s; the move to %s will be retried", move.current.topic_partition, problem, move.future.log_dir)
                    self._retry(move)
                    return
                except Exception as fault:
                    self._retry_after_fault(move, fault)
                    return
            self._step(move)

        self._background.submit(_NAME, lambda: data.append(_read(move.current, region)), then)

    def _append(self, move: Move, data: bytes) -> None:
        current, future = move.current, move.future
        try:
            future.append(BatchRun(memoryview(data)), _ANY_EPOCH, self._clock.now_ms(), REPLICATION)
        except UnexpectedAppendOffset as error:
            if not future.begins_inside_batch(error):
                raise
            self._begin_lower(move, error.first_offset, data)
            return
        self._count(len(data))
        future.update_high_watermark(current.high_watermark)
        if future.log_start_offset < current.log_start_offset <= future.high_watermark:
            future.increment_log_start_offset(current.log_start_offset, "as in the log that it is to replace")

    def _begin_lower(self, move: Move, offset: int, data: bytes) -> None:
        """The log start offset is inside a batch, and batches are copied as a whole: the future log begins with that
        batch."""
        move.cuts += 1
        cuts = move.cuts

        def then(error: Exception | None) -> None:
            self._on_cut(move, error)
            if error is None and not move.is_stopped and move.cuts == cuts:
                try:
                    self._append(move, data)
                except LogDirFailure as failure:
                    self._fail(move, failure)
                except StorageError as problem:
                    # It will be read again.
                    log.error("%s: %s; the move to %s will be retried", move.current.topic_partition, problem, move.future.log_dir)

        move.future.truncations.truncate_fully_in_thread(offset, then)

    def _begin_behind_remote(self, move: Move) -> None:
        """The older records are in the remote store only: the future log begins with the first local segment, and knows the earlier
        epochs and producers."""
        current, future = move.current, move.future
        start = current.local_log_start_offset
        if move.producers is None or move.producers[0] != start:
            found: list[bytes] = []
            work = partial(current.producer_state.read_snapshot, start)
            self._background.submit(_NAME, lambda: found.append(work()), lambda error: self._on_producers(move, start, found, error))
            return
        snapshot = move.producers[1]
        move.cuts += 1
        epochs = epochs_between(current.leader_epochs.entries, current.log_start_offset, start)

        def then(error: Exception | None) -> None:
            if error is None and snapshot:
                path = future.producer_state.snapshot_path(start)
                future.producer_state.take_over(start, decode_snapshot(snapshot, path), self._clock.now_ms())
                write = partial(future.files.small_files.replace, path.rpartition("/")[2], snapshot)
                self._background.submit(_NAME, write, lambda error: self._on_written(move, error))
            self._on_cut(move, error)

        future.truncations.truncate_fully_in_thread(start, then, RemoteRecords(current.log_start_offset, epochs))
        self._later(move, 0)

    def _on_written(self, move: Move, error: BaseException | None) -> None:
        if isinstance(error, OSError) and not move.is_stopped:
            self._fail(move, move.future.files.failure(error))

    def _on_producers(self, move: Move, start: int, found: list[bytes], error: BaseException | None) -> None:
        if error is not None and not move.is_stopped:
            self._retry_after_fault(move, error)
            return
        move.producers = start, b"".join(found)
        self._step(move)

    # ---- completion

    def _finish(self, move: Move) -> None:
        """Everything is copied: replaces the current log as soon as the future log is as durable."""
        current, future = move.current, move.future
        if future.flushes.plans:
            # Without further flushes: otherwise a log that is flushed with every append would never be replaced.
            self._hold_flushes(move)
            self._later(move, _POLL_MS)
            return
        if future.recovery_point < current.recovery_point:
            if move.was_flushed:
                self._hold_flushes(move)
            self._flush_in_thread(move)
            return
        if future.log_start_offset < current.log_start_offset:
            future.update_high_watermark(current.high_watermark)
            future.increment_log_start_offset(current.log_start_offset, "as in the log that it replaces")
        if current.tier is not None and not move.has_marker:
            self._background.submit(_NAME, lambda: _copy_marker(current, future), lambda error: self._on_marker(move, error))
            return
        _take_latest_epoch(current, future)
        topic_partition = current.topic_partition
        due = min(current.flushes.due_offset, current.log_end_offset)
        replaced = self._manager.future_logs.replace_current(topic_partition)
        if due > future.recovery_point:
            # Producers wait for this flush.
            future.on_flush_due()
        self.stop(topic_partition)
        self.on_replaced(replaced)
        self._release()

    def _on_marker(self, move: Move, error: BaseException | None) -> None:
        if isinstance(error, OSError) and not move.is_stopped:
            self._fail(move, move.future.files.failure(error))
        move.has_marker = error is None
        self._step(move)

    def _hold_flushes(self, move: Move) -> None:
        """Producers that wait for a flush get it after the move."""
        self._manager.flusher.hold(move.current)
        self._manager.flusher.hold(move.future)

    def _release_flushes(self, move: Move) -> None:
        self._manager.flusher.release(move.current)
        self._manager.flusher.release(move.future)

    def _flush_in_thread(self, move: Move) -> None:
        move.was_flushed = True
        plan = move.future.flushes.prepare(move.future.log_end_offset)
        if plan is None:
            self._later(move, _POLL_MS)
            return
        self._background.submit(_NAME, plan.run, lambda error: self._on_flushed(move, plan, error))

    def _on_flushed(self, move: Move, plan: FlushPlan, error: BaseException | None) -> None:
        if isinstance(error, OSError) and not move.is_stopped:
            self._fail(move, move.future.files.failure(error))
        elif error is None and not move.future.is_closed:
            move.future.flushes.finish(plan)
        elif error is not None:
            move.future.flushes.give_up(plan)
            log.error("%s: a flush in %s failed; it will be retried", move.current.topic_partition, move.future.log_dir, exc_info=error)
            self._later(move, _BACKOFF_MS)
            return
        self._step(move)

    def _fail(self, move: Move, failure: LogDirFailure) -> None:
        self._manager.report_failure(failure)  # this ends all moves from and to the directory, with a log line for each
        self.stop(move.current.topic_partition)

    # ---- the throttle

    def _throttle_ms(self) -> int:
        limit = self._config.quota(REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND)
        if limit != self._limit:
            self._limit = limit
            self._free_at_ms = 0.0
        if limit == 0:
            return _BACKOFF_MS
        # At most this long at once, so that a changed limit takes effect soon.
        return min(int(self._free_at_ms - self._clock.monotonic() * 1000), _BACKOFF_MS)

    def _count(self, length: int) -> None:
        if self._limit not in (0, LONG_MAX):
            self._free_at_ms = max(self._clock.monotonic() * 1000, self._free_at_ms) + length * 1000 / self._limit


def _read(current: PartitionLog, region: FileRegion) -> bytes:
    """The bytes of a region of the current log. Raises LogDirFailure, LogClosed."""
    try:
        return region.read()
    except OSError as error:
        raise current.files.failure(error, region.file.path) from error


def _end_of_agreement(current: PartitionLog, future: PartitionLog) -> int:
    """The offset at which the future log diverges from the current one, by their leader epochs (KIP-101); its log end
    offset if it does not."""
    end_offset = min(future.log_end_offset, max(current.log_end_offset, future.log_start_offset))
    epoch = future.latest_epoch
    if epoch is None:
        return min(future.high_watermark, end_offset)
    while True:
        found_epoch, found_end = current.end_offset_for_epoch(epoch)
        if found_epoch < 0 or found_end < 0:
            return min(future.high_watermark, end_offset)
        own_epoch, own_end = future.end_offset_for_epoch(found_epoch)
        if own_epoch < 0:
            return min(found_end, end_offset)
        if own_epoch == found_epoch:
            return min(found_end, own_end, end_offset)
        epoch = own_epoch


def _take_latest_epoch(current: PartitionLog, future: PartitionLog) -> None:
    """Copies the latest leader epoch if no record was written in it, as no batch contains it."""
    epoch = current.latest_epoch
    if epoch is not None and (future.latest_epoch is None or epoch > future.latest_epoch):
        start_offset = current.leader_epochs.start_offset_of(epoch)
        future.assign_epoch(epoch, future.log_end_offset if start_offset is None else start_offset)


def _copy_marker(current: PartitionLog, future: PartitionLog) -> None:
    """Copies the file that says whose copies the remote store has. Blocks; raises OSError."""
    filesystem = current.context.filesystem
    path = f"{current.directory}/{OTHER_LOG}"
    if filesystem.exists(path):
        replace_file(filesystem, f"{future.directory}/{OTHER_LOG}", filesystem.read_file(path))


def _ignore(_: PartitionLog) -> None:
    pass
