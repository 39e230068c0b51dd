"""Verifies a data directory: every segment, then the consistency between the files of a partition, and with the
checkpoints.

Worker processes verify segments, largest first; the checks between segments use their reports. Checkpoints are read
before the logs: a running broker then only moves the ends of its logs up from the checkpointed values.
"""

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from ottla.cli.dump.segment_check import SegmentReport, SegmentTask, check_segment
from ottla.storage.disk.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name
from ottla.storage.disk.file_names import LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, offset_of_file_name
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.leader_epochs import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from ottla.storage.disk.meta_properties import META_PROPERTIES, read_meta_properties
from ottla.storage.disk.partition_metadata import read_topic_id
from ottla.storage.disk.start_errors import LogDirectoryError
from ottla.storage.errors import StorageError
from ottla.storage.manager.log_directories import LOCK_FILE
from ottla.storage.producers.snapshot import decode_snapshot

_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
_LOCK_REQUEST = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid

_WORTH_A_PROCESS_BYTES = 64 * 1024 * 1024

Progress = Callable[[int, int], None]
"""Called with (bytes verified, bytes in total)."""


class PartitionReport(NamedTuple):
    """One partition directory."""

    directory: str
    segments: int
    bytes: int
    batches: int
    records: int
    start_offset: int
    end_offset: int
    problems: list[str]


class DirectoryReport(NamedTuple):
    """One data directory, or one partition directory by itself."""

    directory: str
    is_live: bool
    partitions: list[PartitionReport]
    problems: list[str]

    @property
    def all_problems(self) -> list[str]:
        return self.problems + [problem for partition in self.partitions for problem in partition.problems]


def is_partition_directory(path: Path) -> bool:
    """Whether the directory itself contains segments."""
    return any(offset_of_file_name(file.name) is not None for file in path.glob(f"*{LOG_SUFFIX}"))


def check_directory(path: Path, *, workers: int, progress: Progress) -> DirectoryReport:
    """Verify a data directory, or one partition's directory."""
    alone = is_partition_directory(path)
    log_dir = path.parent if alone else path
    live = lock_owner(log_dir / LOCK_FILE) is not None
    problems: list[str] = []
    checkpoints: dict[str, dict[str, int]] = {}
    if not alone:
        checkpoints = _read_checkpoints(path, problems)
    directories = [path] if alone else list(_partition_directories(path))
    if not directories and not (path / META_PROPERTIES).exists():
        problems.append(f"{path} is neither a data directory nor a partition's: it has no {META_PROPERTIES}, no partition and no segment")
    extras = {str(directory): _Extras(directory) for directory in directories}
    tasks = [task for directory in directories for task in _tasks(directory, live)]
    reports = _run(tasks, workers, progress)
    partitions = [
        _partition(str(directory), sorted(reports.get(str(directory), []), key=lambda report: report.base_offset), extras[str(directory)])
        for directory in directories
    ]
    for partition in partitions:
        _compare_with_checkpoints(partition, checkpoints)
    return DirectoryReport(str(path), live, partitions, problems)


def lock_owner(path: Path) -> int | None:
    """The process that holds a broker's lock, 0 for one that this process cannot name; None without one. Takes no lock."""
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, _LOCK_REQUEST.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return None
    kind, _, _, _, pid = _LOCK_REQUEST.unpack(answer)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def _partition_directories(log_dir: Path) -> Iterator[Path]:
    for directory in sorted(log_dir.iterdir()):
        parsed = parse_directory_name(directory.name)
        if directory.is_dir() and parsed is not None and parsed[1] is not DirectoryKind.DELETE:
            yield directory


def _tasks(directory: Path, live: bool) -> list[SegmentTask]:
    offsets = (offset_of_file_name(path.name) for path in directory.glob(f"*{LOG_SUFFIX}"))
    bases = sorted(offset for offset in offsets if offset is not None)
    return [SegmentTask(str(directory), base, base == bases[-1], live) for base in bases]


def _run(tasks: list[SegmentTask], workers: int, progress: Progress) -> dict[str, list[SegmentReport]]:
    sizes = {task: _size(task) for task in tasks}
    total = sum(sizes.values())
    done = 0
    found: dict[str, list[SegmentReport]] = {}
    progress(0, total)
    for task, report in _reports(sorted(tasks, key=lambda task: -sizes[task]), workers, total):
        if report is not None:
            found.setdefault(report.directory, []).append(report)
        done += sizes[task]
        progress(done, total)
    return found


def _reports(tasks: list[SegmentTask], workers: int, total: int) -> Iterator[tuple[SegmentTask, SegmentReport | None]]:
    if workers < 2 or len(tasks) < 2 or total < _WORTH_A_PROCESS_BYTES:
        yield from ((task, check_segment(task)) for task in tasks)
        return
    from multiprocessing import get_context  # importing it costs a tenth of the start of every other command

    with ProcessPoolExecutor(min(workers, len(tasks)), mp_context=get_context("spawn")) as pool:
        running = {pool.submit(check_segment, task): task for task in tasks}
        for future in as_completed(running):
            yield running[future], future.result()


def _size(task: SegmentTask) -> int:
    try:
        return Path(task.directory, f"{task.base_offset:020d}{LOG_SUFFIX}").stat().st_size
    except OSError:
        return 0


# ---- a partition


class _Extras:
    """The small files of a partition's directory, read before its logs."""

    def __init__(self, directory: Path) -> None:
        self.problems: list[str] = []
        self.epochs: list[tuple[int, int]] = []
        self.snapshots: list[int] = []
        self._filesystem = RealFileSystem()
        path = directory / LEADER_EPOCH_CHECKPOINT
        try:
            if path.exists():
                self.epochs = read_leader_epochs(str(path), self._filesystem)
            read_topic_id(self._filesystem, str(directory))
        except (StorageError, OSError) as error:
            self.problems.append(str(error))
        for (epoch, start), (following, its_start) in zip(self.epochs, self.epochs[1:], strict=False):
            if following <= epoch or its_start < start:
                self.problems.append(f"{path}: epoch {following} from offset {its_start} follows epoch {epoch} from offset {start}")
        for snapshot in sorted(directory.glob(f"*{PRODUCER_SNAPSHOT_SUFFIX}")):
            self._read_snapshot(snapshot)

    def _read_snapshot(self, path: Path) -> None:
        offset = offset_of_file_name(path.name)
        if offset is None:
            return
        try:
            entries = decode_snapshot(path.read_bytes(), str(path))
        except FileNotFoundError:
            return  # a newer one replaced it meanwhile
        except (StorageError, OSError) as error:
            self.problems.append(str(error))
            return
        self.snapshots.append(offset)
        for entry in entries:
            for _, last_offset, _, _ in entry.batches:
                if last_offset >= offset:
                    self.problems.append(f"{path}: producer {entry.producer_id} wrote offset {last_offset}, beyond the snapshot")


def _partition(directory: str, reports: list[SegmentReport], extras: _Extras) -> PartitionReport:
    problems = [problem for report in reports for problem in report.problems]
    problems += extras.problems
    end_offset = reports[-1].base_offset if reports else 0
    start_offset = reports[0].base_offset if reports else 0
    reached = epoch = -1
    for report in reports:
        where = f"{directory}/{report.base_offset:020d}{LOG_SUFFIX}"
        if reached > report.base_offset:
            problems.append(f"{where}: the segment before it ends only before offset {reached}")
        if 0 <= report.first_epoch < epoch:
            problems.append(f"{where}: leader epoch {report.first_epoch} after {epoch} in the segment before")
        epoch = max(epoch, report.last_epoch)
        if report.next_offset is not None:
            reached = end_offset = max(reached, report.next_offset)
    end_offset = max(end_offset, reports[-1].base_offset if reports else 0)
    problems += [
        f"{directory}/{offset:020d}{PRODUCER_SNAPSHOT_SUFFIX}: the log ends at offset {end_offset}"
        for offset in extras.snapshots
        if offset > end_offset and reports
    ]
    problems += [
        f"{directory}/{LEADER_EPOCH_CHECKPOINT}: epoch {number} begins at offset {start}, the log ends at {end_offset}"
        for number, start in extras.epochs
        if start > end_offset and reports
    ]
    return PartitionReport(
        directory,
        len(reports),
        sum(report.bytes for report in reports),
        sum(report.batches for report in reports),
        sum(report.records for report in reports),
        start_offset,
        end_offset,
        problems,
    )


# ---- a data directory


def _read_checkpoints(log_dir: Path, problems: list[str]) -> dict[str, dict[str, int]]:
    filesystem = RealFileSystem()
    found = {}
    try:
        read_meta_properties(str(log_dir), filesystem)
    except (LogDirectoryError, OSError) as error:
        problems.append(str(error))
    for name in _CHECKPOINTS:
        try:
            offsets = OffsetCheckpoint(str(log_dir), name, filesystem).read()
        except (StorageError, OSError) as error:
            problems.append(str(error))
            continue
        found[name] = {str(topic_partition): offset for topic_partition, offset in offsets.items()}
    return found


def _compare_with_checkpoints(partition: PartitionReport, checkpoints: dict[str, dict[str, int]]) -> None:
    path = Path(partition.directory)
    for name, offsets in checkpoints.items():
        offset = offsets.get(path.name)
        if offset is not None and offset > partition.end_offset and partition.segments:
            partition.problems.append(f"{path.parent / name}: {path.name} {offset}, but the log ends at offset {partition.end_offset}")
