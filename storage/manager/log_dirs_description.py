"""Describes the log directories for DescribeLogDirs: space, and the size and lag of every replica."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_directories import LogDirectories

UNKNOWN_BYTES = -1
UNKNOWN_LAG = -1


class ReplicaDescription(NamedTuple):
    """One log."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    """For a future log, its lag behind the current log; otherwise the lag of the log end behind the high watermark."""
    is_future: bool


class LogDirDescription(NamedTuple):
    """One log directory. Sizes are -1 when it is offline or the disk does not report them."""

    path: str
    is_live: bool
    total_bytes: int
    usable_bytes: int
    replicas: Iterator[ReplicaDescription]
    """Lazily described, so that a caller with thousands of replicas can yield in between."""


def describe(
    directories: LogDirectories,
    current: Mapping[TopicPartition, PartitionLog],
    future: Mapping[TopicPartition, PartitionLog],
    filesystem: FileSystem,
) -> list[LogDirDescription]:
    """All directories, in the order of `log.dirs`."""
    currents: dict[str, list[PartitionLog]] = {path: [] for path in directories.all}
    futures: dict[str, list[PartitionLog]] = {path: [] for path in directories.all}
    for logs, by_path in ((current, currents), (future, futures)):
        for log in logs.values():
            by_path[log.log_dir].append(log)
    described = []
    for path, directory in directories.all.items():
        total_bytes = usable_bytes = UNKNOWN_BYTES
        if directory.is_live:
            try:
                total_bytes, usable_bytes = filesystem.total_and_free_bytes(path)
            except OSError:
                total_bytes = usable_bytes = UNKNOWN_BYTES
        replicas = _describe_replicas(currents[path], futures[path], current)
        described.append(LogDirDescription(path, directory.is_live, total_bytes, usable_bytes, replicas))
    return described


def _describe_replicas(
    currents: Iterable[PartitionLog], futures: Iterable[PartitionLog], current: Mapping[TopicPartition, PartitionLog]
) -> Iterator[ReplicaDescription]:
    for log in currents:
        yield ReplicaDescription(log.topic_partition, log.size_bytes, max(log.high_watermark - log.log_end_offset, 0), False)
    for log in futures:
        source = current.get(log.topic_partition)
        lag = UNKNOWN_LAG if source is None else source.log_end_offset - log.log_end_offset
        yield ReplicaDescription(log.topic_partition, log.size_bytes, lag, True)
