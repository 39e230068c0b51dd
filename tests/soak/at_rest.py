"""What has to be true of a broker's log and directories when nobody works on it any more. Each check returns what is wrong, a line each."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name
from ottla.storage.disk.file_names import INDEX_SUFFIXES, LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.leader_epochs import LEADER_EPOCH_CHECKPOINT
from ottla.storage.disk.meta_properties import META_PROPERTIES
from ottla.storage.disk.partition_metadata import PARTITION_METADATA, read_topic_id
from ottla.storage.manager.log_directories import CLEAN_SHUTDOWN_FILE

BAD_LINE = re.compile(r"\b(ERROR|CRITICAL|Traceback|Exception)\b|log directory.* (offline|failed)")
HARMLESS = re.compile(r"ERROR cannot follow broker \d+, which is not alive")
"""It has just died, and the controller will name another."""
CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
_KNOWN_FILES = {*CHECKPOINTS, CLEANER_OFFSET_CHECKPOINT, CLEAN_SHUTDOWN_FILE, META_PROPERTIES, ".lock"}
_METADATA_FILE = re.compile(r"ottla-metadata\.sqlite3.*")
_SEGMENT_FILE = re.compile(r"(\d{20})(\.\w+)")

Topics = Mapping[TopicPartition, bytes]
"""The partitions that a broker has replicas of, with the ids of their topics."""


def bad_lines(log: str) -> list[str]:
    """Errors, stack traces with the line before them, log directories that went offline."""
    lines = log.splitlines()
    found: list[str] = []
    for number, line in enumerate(lines):
        if not BAD_LINE.search(line) or HARMLESS.search(line):
            continue
        if line.startswith("Traceback"):
            end = next((at for at in range(number + 1, len(lines)) if not lines[at].startswith(" ")), number)
            found += [*lines[max(0, number - 1) : number], *lines[number : end + 1]]
        else:
            found.append(line)
    return found


def foreign_names(log_dirs: Iterable[Path], topics: Topics, *, was_killed: bool = False) -> list[str]:
    """What a running broker has left in its directories that belongs to no topic, and what is on its way in or out of them.

    Who was killed may leave a file that was to replace a checkpoint: it is overwritten by the next. It may also have set aside replicas of
    topics that were deleted while it was away.
    """
    found: list[str] = []
    at: dict[TopicPartition, list[Path]] = {}
    for log_dir in log_dirs:
        for path in sorted(log_dir.iterdir()):
            parsed = parse_directory_name(path.name) if path.is_dir() else None
            if parsed is None:
                is_leftover = was_killed and path.suffix == ".tmp" and path.stem in _KNOWN_FILES
                if path.name not in _KNOWN_FILES and not _METADATA_FILE.fullmatch(path.name) and not is_leftover:
                    found.append(f"{path} is nobody's")
            elif parsed[1] is DirectoryKind.STRAY and was_killed:
                if read_topic_id(RealFileSystem(), str(path)) in topics.values():
                    found.append(f"{path} is of a topic that was not deleted")
            elif parsed[1] is not DirectoryKind.CURRENT or parsed[0] not in topics:
                found.append(f"{path} belongs to no topic")
            else:
                at.setdefault(parsed[0], []).append(path)
                found += _foreign_files(path, was_killed)
                if read_topic_id(RealFileSystem(), str(path)) != topics[parsed[0]]:
                    found.append(f"{path} is of another topic of that name")
    for partition in topics:
        if len(at.get(partition, [])) != 1:
            found.append(f"{partition} stands in {len(at.get(partition, []))} directories: {', '.join(map(str, at.get(partition, [])))}")
    return found


def _foreign_files(directory: Path, was_killed: bool) -> list[str]:
    names = {path.name for path in directory.iterdir()}
    found = []
    for name in sorted(names):
        segment = _SEGMENT_FILE.fullmatch(name)
        if segment is not None:
            base, suffix = segment.groups()
            is_known = suffix in (LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX) or (suffix in INDEX_SUFFIXES and base + LOG_SUFFIX in names)
        else:
            is_known = name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA) or (was_killed and name.endswith(".tmp"))
        if not is_known:
            found.append(f"{directory / name} is no part of the log")
    return found


def badly_stopped(log_dirs: Iterable[Path], ends: Mapping[TopicPartition, int], topics: Iterable[TopicPartition]) -> list[str]:
    """What a clean stop left undone: marks, checkpoints, and what they say. `ends` is where logs end, as far as that is known."""
    wanted = set(topics)
    found = []
    for log_dir in log_dirs:
        if not (log_dir / CLEAN_SHUTDOWN_FILE).exists():
            found.append(f"{log_dir} is not marked as closed")
        here = {parsed[0] for path in log_dir.iterdir() if path.is_dir() and (parsed := parse_directory_name(path.name))}
        for name in CHECKPOINTS:
            if here and not (log_dir / name).exists():
                found.append(f"{log_dir} has no {name}")
            written = OffsetCheckpoint(str(log_dir), name, RealFileSystem()).read()
            found += [f"{log_dir}/{name} has {partition}, which is not there" for partition in sorted(written.keys() - here)]
            if name != LOG_START_OFFSET_CHECKPOINT:  # which has those only that do not begin with their first segment
                found += [f"{log_dir}/{name} has no {partition}" for partition in sorted(here & wanted - written.keys())]
            for partition, offset in written.items():
                end = ends.get(partition)
                if end is not None and (offset > end or (name == RECOVERY_POINT_CHECKPOINT and offset < end)):
                    found.append(f"{log_dir}/{name}: {partition} {offset}, and the log ends at {end}")
    return found


def broken_logs(log_dirs: Sequence[Path]) -> list[str]:
    """What `ottla dump-log --verify` finds in the directories of a broker that is stopped."""
    command = [sys.executable, "-m", "ottla", "dump-log", "--verify", "--workers", "1", *map(str, log_dirs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()[-20:] if done.returncode else []
