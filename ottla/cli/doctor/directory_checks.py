"""Examines log directories from outside, also those of a running broker: identity, contents, leftovers, a sample of
segments."""

import os
import random
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from ottla.cli.doctor.host import Host
from ottla.cli.doctor.kinds import Finding, found, some
from ottla.cli.dump.directory_check import lock_owner
from ottla.cli.dump.segment_check import SegmentTask, check_segment
from ottla.storage.disk.directory_names import PERMITTED_DIRECTORIES, DirectoryKind, parse_directory_name
from ottla.storage.disk.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, offset_of_file_name
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties
from ottla.storage.disk.start_errors import LogDirectoryError
from ottla.storage.errors import StorageError
from ottla.storage.manager.log_directories import CLEAN_SHUTDOWN_FILE, LOCK_FILE

LEFT_SECONDS = 86_400.0
"""Age from which files of an unfinished work are leftovers."""
CLOCK_SECONDS = 60.0
SAMPLED_SEGMENTS = 20
SAMPLED_BYTES = 256 * 1024 * 1024
"""Limits of the sample of one directory: it is read in a second or two."""


class DirectoryFacts(NamedTuple):
    """One readable log directory."""

    path: str
    pid: int | None
    """The process of the broker that uses it: 0 for an unknown one, None without one."""
    identity: MetaProperties | None
    partitions: dict[str, DirectoryKind]
    """Names of partitions' directories."""
    segments: list[tuple[str, int, int]]
    """(directory, base offset, size in bytes) of each."""


def examine(path: str, host: Host, findings: list[Finding], dice: random.Random) -> DirectoryFacts | None:
    """The facts of a log directory; its faults are added to the findings. None if it is missing or cannot be read."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return None  # a broker creates it
    except OSError as error:
        findings.append(_unusable(f"{path}: {error.strerror}", path))
        return None
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(13, "this user may not write it", path)
    except OSError as error:
        findings.append(_unusable(f"{path}: {error.strerror}", path))
        return None
    partitions: dict[str, DirectoryKind] = {}
    for entry in entries:
        if not _is_directory(entry):
            continue
        parsed = parse_directory_name(entry.name)
        if parsed is not None:
            partitions[entry.name] = parsed[1]
        elif entry.name not in PERMITTED_DIRECTORIES:
            findings.append(found("directory-foreign-content", f"{entry.path} is no partition", f"mv {quote(entry.path)} elsewhere"))
    closed = [each for each in (f"{path}/{META_PROPERTIES}", *(f"{path}/{name}" for name in partitions)) if _is_closed(each)]
    segments: list[tuple[str, int, int]] = []
    for name in partitions:
        closed_files = [file for file, _ in _files(f"{path}/{name}") if _is_closed(file)]
        closed += closed_files
        if not closed_files:
            segments += _segments(Path(path, name))
    if closed:
        findings.append(_unusable(f"{some(closed)}: this user may not read and write", closed[0]))
    identity = _identity(path, findings) if f"{path}/{META_PROPERTIES}" not in closed else None
    facts = DirectoryFacts(path, lock_owner(Path(path, LOCK_FILE)), identity, partitions, segments)
    findings += _leftovers(facts, host)
    findings += _damaged(facts, dice)
    return facts


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links, or one into a closed directory
        return False


def _unusable(what: str, path: str) -> Finding:
    return found("directory-unusable", what, f"ls -ld {quote(path)}; run this as the user of the broker, or give that user the files")


def _is_closed(path: str) -> bool:
    """Whether a file or a directory exists, but this user may not read it."""
    try:
        needed = os.R_OK | os.W_OK | (os.X_OK if stat.S_ISDIR(os.stat(path).st_mode) else 0)
    except FileNotFoundError:
        return False  # deleted meanwhile
    except OSError:
        return True
    return not os.access(path, needed, effective_ids=True)


def _identity(path: str, findings: list[Finding]) -> MetaProperties | None:
    try:
        return read_meta_properties(path, RealFileSystem())
    except (LogDirectoryError, OSError) as error:
        findings.append(found("directory-identity", str(error), f"restore {quote(f'{path}/{META_PROPERTIES}')} from a backup"))
        return None


def compare(directories: Sequence[DirectoryFacts], broker_id: int | None) -> Iterator[Finding]:
    """The faults of the log directories of one broker beside each other. `broker_id` is the configured one."""
    owners = {each.path: each.identity for each in directories if each.identity is not None}
    ids = {identity.broker_id for identity in owners.values()} - {None} | ({broker_id} if broker_id is not None else set())
    clusters = {identity.cluster_id for identity in owners.values()} - {None}
    if len(ids) > 1 or len(clusters) > 1:
        said = "; ".join(f"{path} is of broker {identity.broker_id}, cluster {identity.cluster_id}" for path, identity in owners.items())
        configured = "" if broker_id is None else f"; broker.id is {broker_id}"
        yield found("directory-identity", said + configured, "set broker.id and log.dirs to the directories of one broker")
    places: dict[str, list[str]] = {}
    for each in directories:
        for name, kind in each.partitions.items():
            if kind is DirectoryKind.CURRENT:
                places.setdefault(name, []).append(each.path)
    for name, paths in places.items():
        if len(paths) > 1:
            yield found(
                "partition-twice",
                f"{name} is in {' and in '.join(paths)}",
                f"rm -r {quote(f'{paths[-1]}/{name}')}, if that directory failed",
            )


def _segments(directory: Path) -> Iterator[tuple[str, int, int]]:
    try:
        for entry in os.scandir(directory):
            base_offset = offset_of_file_name(entry.name) if entry.name.endswith(LOG_SUFFIX) else None
            if base_offset is not None:
                yield str(directory), base_offset, entry.stat().st_size
    except OSError:
        return  # deleted meanwhile


def _leftovers(facts: DirectoryFacts, host: Host) -> Iterator[Finding]:
    now = host.now()
    stray = [f"{facts.path}/{name}" for name, kind in facts.partitions.items() if kind is DirectoryKind.STRAY]
    if stray:
        yield found("stray-replica", some(stray), f"rm -r {quote(stray[0])}, once its records are not needed")
    old, future = [], []
    for name, kind in facts.partitions.items():
        for path, changed_at in _files(f"{facts.path}/{name}"):
            is_left = kind is DirectoryKind.DELETE or path.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX))
            if is_left and now - changed_at > LEFT_SECONDS:
                old.append(path)
            if changed_at - now > CLOCK_SECONDS:
                future.append(path)
    if old:
        yield found("leftover-files", f"{some(old)} are older than a day", "restart the broker")
    if future:
        yield found("clock-behind", f"{some(future)} were changed in the future", "timedatectl; set the clock before the broker starts")


def _files(directory: str) -> Iterator[tuple[str, float]]:
    """The files of a directory with the times of their last changes."""
    try:
        for entry in os.scandir(directory):
            yield entry.path, entry.stat().st_mtime
    except OSError:
        return


def _damaged(facts: DirectoryFacts, dice: random.Random) -> Iterator[Finding]:
    # An unfinished write of a running or crashed broker is no damage: the next start cuts it off.
    is_unfinished = facts.pid is not None or not os.path.exists(f"{facts.path}/{CLEAN_SHUTDOWN_FILE}")
    last: dict[str, int] = {}
    for directory, base_offset, _ in facts.segments:
        last[directory] = max(base_offset, last.get(directory, 0))
    read = 0
    problems: list[str] = []
    unreadable: list[str] = []
    for directory, base_offset, size in dice.sample(facts.segments, min(SAMPLED_SEGMENTS, len(facts.segments))):
        if read and read + size > SAMPLED_BYTES:
            continue
        read += size
        task = SegmentTask(directory, base_offset, base_offset == last[directory], is_unfinished)
        try:
            if (segment := check_segment(task)) is not None:
                batches = set(segment.unreadable)
                problems += (problem for problem in segment.problems if problem not in batches)
                unreadable += segment.unreadable
        except (StorageError, OSError) as error:
            problems.append(str(error))
    verify = f"ottla dump-log --verify {quote(facts.path)}"
    if problems:
        yield found("segment-damaged", some(problems), f"{verify}; delete the replica if others are in sync, and restart the broker")
    if unreadable:
        yield found(
            "batch-unreadable", some(unreadable), f"{verify} names all of them; move the consumers behind them, or delete the records"
        )
