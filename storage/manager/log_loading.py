"""Opens all logs of the log directories when the broker starts.

Called by `LogManager.load`, in a thread or before the event loop runs. `num.recovery.threads.per.data.dir` threads open
the logs of each directory. After a clean stop that reads next to nothing; after a crash it checks the unflushed part,
and logs the progress every ten seconds.

An unreadable directory goes offline and the others continue. A directory with foreign content, or a partition with
records in two directories, stops the broker, because data might be lost otherwise. A future log without the log that it
is to replace becomes the log.
"""

import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ottla.config.topic import TopicConfig
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from ottla.storage.disk.directory_names import PERMITTED_DIRECTORIES, DirectoryKind, parse_directory_name, suffixed_name
from ottla.storage.disk.file_names import TEMPORARY_SUFFIX
from ottla.storage.disk.meta_properties import META_PROPERTIES
from ottla.storage.disk.start_errors import DuplicateLog, ForeignDirectory, LoadingStopped
from ottla.storage.errors import CorruptCheckpoint, LogDirFailure
from ottla.storage.log.context import LogContext
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from ottla.storage.manager.log_directories import CLEAN_SHUTDOWN_FILE, LogDirectories, LogDirectory

log = logging.getLogger(__name__)

_CHECKPOINTS = (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
_TEMPORARY = frozenset(name + TEMPORARY_SUFFIX for name in (*_CHECKPOINTS, CLEANER_OFFSET_CHECKPOINT, META_PROPERTIES, CLEAN_SHUTDOWN_FILE))
"""Temporary files of a run that was killed; the files that they were to replace are complete."""
_PROGRESS_SECONDS = 10.0
_TASKS_AT_ONCE = 50
"""Logs that a thread opens between reports: waking the main thread for each log costs as much as opening one."""


class Progress:
    """How many logs were found, and how many of them are open. Other threads may read it, and stop the loading."""

    __slots__ = ("is_stopped", "opened", "total")

    def __init__(self) -> None:
        self.opened = 0
        self.total = 0
        self.is_stopped = False
        """Whether no other log is to be opened. Those in progress are completed, so that the next start finds no half of a repair."""


class LoadedLogs:
    """The logs found in the log directories."""

    __slots__ = ("current", "deleted", "future", "stray")

    def __init__(self) -> None:
        self.current: dict[TopicPartition, PartitionLog] = {}
        self.future: dict[TopicPartition, PartitionLog] = {}
        self.deleted: list[tuple[str, str]] = []
        """(log directory, path) of directories left by a deletion."""
        self.stray: list[str] = []


class _Task(NamedTuple):
    directory: LogDirectory
    name: str
    topic_partition: TopicPartition
    kind: DirectoryKind
    log_start_offset: int | None
    recovery_point: int
    high_watermark: int


_Opened = tuple[_Task, PartitionLog | Exception]


class LogLoading:
    """The loading of one start."""

    def __init__(
        self,
        directories: LogDirectories,
        context: LogContext,
        topic_config_of: Callable[[str], TopicConfig],
        threads_per_directory: int,
        progress: Progress | None = None,
    ) -> None:
        self._progress = progress or Progress()
        self._directories = directories
        self._context = context
        self._topic_config_of = topic_config_of
        self._threads = threads_per_directory
        self._loaded = LoadedLogs()
        self._outdated: dict[LogDirectory, list[tuple[str, dict[TopicPartition, int]]]] = {}
        """Checkpoints with entries of partitions that do not exist, and their content without those."""
        self._temporary: dict[LogDirectory, list[str]] = {}

    def run(self) -> LoadedLogs:
        """Opens all logs. Raises ForeignDirectory, DuplicateLog, NoUsableLogDirectory, LoadingStopped."""
        pools: list[ThreadPoolExecutor] = []
        futures: list[Future[list[_Opened]]] = []
        try:
            # Foreign content is found before any directory is changed.
            tasks_of = {directory: self._tasks_of(directory) for directory in self._directories.live}
            for directory, tasks in tasks_of.items():
                if self._begin(directory, tasks):
                    pool = ThreadPoolExecutor(self._threads, thread_name_prefix=f"log-recovery-{directory.path}")
                    pools.append(pool)
                    some = max(1, min(_TASKS_AT_ONCE, len(tasks) // (self._threads * 4)))
                    futures += [pool.submit(self._open_some, tasks[at : at + some]) for at in range(0, len(tasks), some)]
            self._progress.total = sum(map(len, tasks_of.values()))
            self._collect(futures)
            self._serve_copies()
            self._directories.check_any_live()
        except BaseException:
            for pool in pools:
                pool.shutdown(cancel_futures=True)
            for future in futures:
                if not future.cancelled() and future.exception() is None:
                    for _, opened in future.result():
                        if isinstance(opened, PartitionLog):
                            opened.close_without_writing()
            raise
        finally:
            for pool in pools:
                pool.shutdown()
        for directory in self._directories.live:
            directory.is_loaded = True
        return self._loaded

    def _tasks_of(self, directory: LogDirectory) -> list[_Task]:
        filesystem = self._context.filesystem
        try:
            checkpoints = {name: OffsetCheckpoint(directory.path, name, filesystem).read() for name in _CHECKPOINTS}
            all_names = filesystem.list_directory(directory.path)
            names = [name for name in all_names if filesystem.is_directory(f"{directory.path}/{name}")]
        except (OSError, CorruptCheckpoint) as error:
            self._directories.fail(directory.path, str(error))
            return []
        tasks = []
        for name in names:
            if name in PERMITTED_DIRECTORIES:
                continue
            parsed = parse_directory_name(name)
            if parsed is None:
                raise ForeignDirectory(f"{directory.path}/{name}")
            topic_partition, kind = parsed
            if kind is DirectoryKind.DELETE:
                self._loaded.deleted.append((directory.path, f"{directory.path}/{name}"))
            elif kind is DirectoryKind.STRAY:
                log.warning(
                    "%s/%s: the controller did not know this replica; it is not served, delete it if its data is not needed",
                    directory.path,
                    name,
                )
                self._loaded.stray.append(f"{directory.path}/{name}")
            else:
                start = checkpoints[LOG_START_OFFSET_CHECKPOINT].get(topic_partition)
                recovery, high = (checkpoints[name].get(topic_partition, 0) for name in _CHECKPOINTS[1:])
                tasks.append(_Task(directory, name, topic_partition, kind, start, recovery, high))
        self._temporary[directory] = sorted(_TEMPORARY.intersection(all_names))
        there = {task.topic_partition for task in tasks}
        self._outdated[directory] = [
            (name, {each: offset for each, offset in offsets.items() if each in there})
            for name, offsets in checkpoints.items()
            if not offsets.keys() <= there
        ]
        return tasks

    def _begin(self, directory: LogDirectory, tasks: list[_Task]) -> bool:
        """Prepares the directory; returns whether it has logs to open."""
        if not directory.is_live:
            return False
        try:
            clean = self._directories.take_clean_shutdown(directory)
            for name in self._temporary[directory]:
                self._context.filesystem.unlink(f"{directory.path}/{name}")
            # Otherwise a log created under that name would inherit those offsets if the next stop is a kill.
            for name, offsets in self._outdated[directory]:
                OffsetCheckpoint(directory.path, name, self._context.filesystem).write(offsets)
        except OSError as error:
            self._directories.fail(directory.path, str(error))
            return False
        if tasks:
            how = "closed properly" if clean else "after a crash: checking the unflushed part"
            log.info("%s: opening %d logs %s", directory.path, len(tasks), how)
        return bool(tasks)

    def _open_some(self, tasks: list[_Task]) -> list[_Opened]:
        """Opens logs, in a thread."""
        found: list[_Opened] = []
        for task in tasks:
            try:
                if self._progress.is_stopped:
                    raise LoadingStopped
                found.append((task, self._open(task)))
            except Exception as error:
                found.append((task, error))
        return found

    def _open(self, task: _Task) -> PartitionLog:
        opened = open_log(
            self._context,
            task.topic_partition,
            task.directory.path,
            self._topic_config_of(task.topic_partition.topic),
            directory=f"{task.directory.path}/{task.name}",
            clean_shutdown=task.directory.had_clean_shutdown,
            log_start_offset=task.log_start_offset,
            recovery_point=task.recovery_point,
        )
        opened.update_high_watermark(task.high_watermark)
        for segment in opened.segments:
            segment.release()  # there may be more logs than the process may open files
        return opened

    def _collect(self, futures: list[Future[list[_Opened]]]) -> None:
        clock = self._context.clock
        said = clock.monotonic()
        progress = self._progress
        opened: list[tuple[_Task, PartitionLog]] = []
        problems: list[Exception] = []
        for future in futures:  # in this order, whichever is ready first: the logs are always found in the same order
            for task, found in future.result():
                progress.opened += 1
                if isinstance(found, PartitionLog):
                    opened.append((task, found))
                elif isinstance(found, LogDirFailure | CorruptCheckpoint):
                    self._directories.fail(task.directory.path, str(found))
                else:
                    problems.append(found)
            if clock.monotonic() - said >= _PROGRESS_SECONDS:
                said = clock.monotonic()
                log.info("%d of %d logs are open", progress.opened, progress.total)
        if problems:
            raise problems[0]
        for task, partition_log in opened:
            if not task.directory.is_live:
                partition_log.close_without_writing()
                continue
            logs = self._loaded.future if task.kind is DirectoryKind.FUTURE else self._loaded.current
            previous = logs.get(task.topic_partition)
            if previous is None:
                logs[task.topic_partition] = partition_log
            else:
                logs[task.topic_partition] = self._choose(previous, partition_log, task.kind)
                self._directories[previous.log_dir].log_count -= 1
            self._directories[logs[task.topic_partition].log_dir].log_count += 1

    def _choose(self, first: PartitionLog, second: PartitionLog, kind: DirectoryKind) -> PartitionLog:
        """The longer one of two logs of a partition; the other directory is renamed for deletion.

        A directory that fails while a log is created in it keeps the empty log. The broker then creates the log in another
        directory. A move to another directory than before leaves two future logs if the broker is killed meanwhile. Both
        are copies. Raises DuplicateLog if two logs that are no copies have records.
        """
        kept, spare = (second, first) if second.log_end_offset > first.log_end_offset else (first, second)
        if spare.log_end_offset > 0 and kind is not DirectoryKind.FUTURE:
            raise DuplicateLog(str(kept.topic_partition), first.directory, second.directory)
        spare.close_without_writing()
        name = suffixed_name(spare.topic_partition, DirectoryKind.DELETE, uuid.uuid4().hex)
        renamed = f"{spare.log_dir}/{name}"
        what = "a second copy" if spare.log_end_offset > 0 else "empty"
        log.warning("%s: %s is %s and is deleted; the log in %s is kept", kept.topic_partition, spare.directory, what, kept.directory)
        try:
            self._context.filesystem.rename(spare.directory, renamed)
        except OSError as error:
            log.warning("%s: cannot be renamed for deletion: %s; the next start tries again", spare.directory, error)
        else:
            self._loaded.deleted.append((spare.log_dir, renamed))
        return kept

    def _serve_copies(self) -> None:
        """Make each future log whose partition has no other log the log of the partition.

        A move ends with two renames, mostly on two file systems. A power cut may undo the first one only. Then the future log
        has all records, and an empty log would be created beside it, to which it would be cut. While a directory is offline,
        the other log may be in there.
        """
        if self._directories.offline:
            return
        current, future = self._loaded.current, self._loaded.future
        for topic_partition in [each for each in future if each not in current]:
            copy = future[topic_partition]
            former = copy.directory
            try:
                copy.move_to(f"{copy.log_dir}/{topic_partition}")  # if a power cut undoes that, the next start repeats it
            except LogDirFailure as error:
                log.error("%s: %s cannot take the place of the missing log: %s", topic_partition, former, error)
                continue
            current[topic_partition] = future.pop(topic_partition)
            log.warning("%s: %s was to replace a log that is gone; it is served as %s", topic_partition, former, copy.directory)
