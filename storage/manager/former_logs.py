"""Finds logs of different topics of one name, in different log directories, before the logs are opened.

A topic may be deleted, and another one of its name created, while a directory with a log of the former is offline. The server decides
which of them belongs to a topic, because the metadata store has the id. Everything here blocks.
"""

import logging
import uuid
from collections.abc import Iterable

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name, suffixed_name
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.partition_metadata import read_topic_id
from ottla.storage.errors import CorruptCheckpoint

logger = logging.getLogger(__name__)

TopicIds = dict[str, bytes | None]
"""Log directories, and the topic id of the log of one partition in each."""


def logs_of_several_topics(filesystem: FileSystem, log_dirs: Iterable[str]) -> dict[TopicPartition, TopicIds]:
    """The partitions whose logs in these directories have different topic ids.

    A directory or file that cannot be read is left to those who open the logs.
    """
    places: dict[TopicPartition, list[str]] = {}
    for log_dir in log_dirs:
        try:
            names = filesystem.list_directory(log_dir)
        except OSError:
            continue
        for name in names:
            parsed = parse_directory_name(name)
            if parsed is not None and parsed[1] is DirectoryKind.CURRENT:
                places.setdefault(parsed[0], []).append(log_dir)
    found: dict[TopicPartition, TopicIds] = {}
    for topic_partition, several in places.items():
        if len(several) > 1:
            ids = {log_dir: _topic_id(filesystem, f"{log_dir}/{topic_partition}") for log_dir in several}
            if len(set(ids.values()) - {None}) > 1:
                found[topic_partition] = ids
    return found


def _topic_id(filesystem: FileSystem, directory: str) -> bytes | None:
    try:
        return read_topic_id(filesystem, directory)
    except (OSError, CorruptCheckpoint):
        return None


def set_aside(filesystem: FileSystem, log_dir: str, topic_partition: TopicPartition) -> None:
    """Rename the directory of a former topic's log to end with `-stray`. A disk error is logged; those who open the logs meet it, too."""
    former = f"{log_dir}/{topic_partition}"
    renamed = f"{log_dir}/{suffixed_name(topic_partition, DirectoryKind.STRAY, uuid.uuid4().hex)}"
    try:
        filesystem.rename(former, renamed)
        filesystem.sync_directory(log_dir)
    except OSError as error:
        logger.error("%s: it belongs to a topic that was deleted, and cannot be renamed: %s", former, error)
    else:
        logger.warning("%s: its topic was deleted while its log directory was offline; %s is kept", topic_partition, renamed)
