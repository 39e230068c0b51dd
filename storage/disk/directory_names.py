"""The names of directories in a log directory: `topic-0`, and with `.<32 hex digits>` and a suffix for one that is on its way out or in.

`-delete` is deleted after file.delete.delay.ms, `-future` will take the place of a replica in another log directory, `-stray` was found
without the controller knowing it and is left for the operator.
"""

from enum import Enum

from storage.disk.topic_partition import TopicPartition

MAX_NAME_LENGTH = 255
AT_HOME = frozenset({"remote-log-index-cache", "__cluster_metadata-0"})
"""Not partitions, and may stand there: the index cache of tiered storage, and the metadata log of a KRaft broker."""


class DirectoryKind(Enum):
    """What a partition's directory is for, by its suffix."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


_SUFFIXED = (DirectoryKind.DELETE, DirectoryKind.FUTURE, DirectoryKind.STRAY)


def parse_directory_name(name: str) -> tuple[TopicPartition, DirectoryKind] | None:
    """The partition and the kind; None when it is no partition's directory."""
    kind = next((kind for kind in _SUFFIXED if name.endswith(kind.value)), DirectoryKind.CURRENT)
    if kind is not DirectoryKind.CURRENT:
        stem, dot, unique = name.removesuffix(kind.value).rpartition(".")
        if not (dot and unique):
            return None
    else:
        stem = name
    topic, dash, partition = stem.rpartition("-")
    if not (topic and dash and partition.isascii() and partition.isdigit()):
        return None
    return TopicPartition(topic, int(partition)), kind


def suffixed_name(topic_partition: TopicPartition, kind: DirectoryKind, unique_id: str) -> str:
    """`topic-0.<unique_id>-delete`; a long topic name is cut so that the file system takes it."""
    tail = f"-{topic_partition.partition}.{unique_id}{kind.value}"
    return f"{topic_partition.topic[: MAX_NAME_LENGTH - len(tail)]}{tail}"
