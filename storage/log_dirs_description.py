"""What DescribeLogDirs tells of the log directories: space, and the size and lag of every replica."""

from collections.abc import Mapping
from typing import NamedTuple

from storage.filesystem import FileSystem
from storage.log_directories import LogDirectories
from storage.partition_log import PartitionLog
from storage.topic_partition import TopicPartition

UNKNOWN_BYTES = -1


class ReplicaDescription(NamedTuple):
    """One log."""

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    """For a future log, how far it is behind the current one; else how far the log end is behind the high watermark."""
    is_future: bool


class LogDirDescription(NamedTuple):
    """One log directory. Sizes are -1 when it is offline or the disk does not say."""

    path: str
    is_live: bool
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaDescription]


def describe(
    directories: LogDirectories,
    current: Mapping[TopicPartition, PartitionLog],
    future: Mapping[TopicPartition, PartitionLog],
    filesystem: FileSystem,
) -> list[LogDirDescription]:
    """All directories, in the order of `log.dirs`."""
    replicas: dict[str, list[ReplicaDescription]] = {path: [] for path in directories.all}
    for log in current.values():
        lag = max(log.high_watermark - log.log_end_offset, 0)
        replicas[log.log_dir].append(ReplicaDescription(log.topic_partition, log.size_bytes, lag, False))
    for log in future.values():
        source = current.get(log.topic_partition)
        lag = -1 if source is None else source.log_end_offset - log.log_end_offset
        replicas[log.log_dir].append(ReplicaDescription(log.topic_partition, log.size_bytes, lag, True))
    described = []
    for path, directory in directories.all.items():
        total_bytes = usable_bytes = UNKNOWN_BYTES
        if directory.is_live:
            try:
                total_bytes, usable_bytes = filesystem.total_and_free_bytes(path)
            except OSError:
                total_bytes = usable_bytes = UNKNOWN_BYTES
        described.append(LogDirDescription(path, directory.is_live, total_bytes, usable_bytes, replicas[path]))
    return described
