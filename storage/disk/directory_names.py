"""Parses and builds the names of directories in a log directory: `topic-0`, and `topic-0.<32 hex digits>` with a
suffix.

`-delete` is deleted after file.delete.delay.ms, `-future` replaces a replica in another log directory, `-stray` was
unknown to the controller and is left for the operator.
"""

from enum import Enum

from ottla.protocol.topic_partition import TopicPartition

MAX_NAME_LENGTH = 255
PERMITTED_DIRECTORIES = frozenset({"remote-log-index-cache", "__cluster_metadata-0"})
"""Directories that are not partitions and are allowed: the index cache of tiered storage, and the metadata log of a
KRaft broker."""


class DirectoryKind(Enum):
    """The purpose of a partition's directory, by its suffix."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


_SUFFIXED = (DirectoryKind.DELETE, DirectoryKind.FUTURE, DirectoryKind.STRAY)


def parse_directory_name(name: str) -> tuple[TopicPartition, DirectoryKind] | None:
    """The partition and the kind; None when it is not a partition's directory."""
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
    """`topic-0.<unique_id>-delete`; a long topic name is shortened to the limit of the file system."""
    tail = f"-{topic_partition.partition}.{unique_id}{kind.value}"
    return f"{topic_partition.topic[: MAX_NAME_LENGTH - len(tail)]}{tail}"
