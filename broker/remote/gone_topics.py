"""Keeps which topics of the remote store were found not to exist, and since when, in the file `remote-leftovers` of a log directory.

A broker that is restarted every day would otherwise see each of them for the first time every day, and never remove their copies.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from ottla.storage.disk.checkpoint import replace_file
from ottla.storage.disk.filesystem import FileSystem

logger = logging.getLogger(__name__)

_VERSION: Final = 1

Gone = dict[tuple[str, str], int]
"""The time of the first listing without the topic, milliseconds since 1970, by its name and id."""


class GoneTopics:
    """The file of one broker. Both methods block."""

    def __init__(self, filesystem: FileSystem, log_dir: str, cluster_id: str) -> None:
        self._filesystem = filesystem
        self._path = f"{log_dir}/remote-leftovers"
        self._cluster_id = cluster_id

    def load(self) -> Gone:
        """Reads the file. Without one of this cluster and form no topic is known, so that all copies stay for another day."""
        try:
            content = json.loads(self._filesystem.read_file(self._path))
            if (content["version"], content["cluster_id"]) != (_VERSION, self._cluster_id):
                raise ValueError(f"it is of version {content['version']} and the cluster {content['cluster_id']}")
            return {(str(topic), str(topic_id)): int(since_ms) for topic, topic_id, since_ms in content["topics"]}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s is not used, so copies of deleted topics stay for longer: %s", self._path, error)
            return {}

    def save(self, gone: Gone) -> None:
        """Writes the file. A failure costs time alone."""
        topics = [[topic, topic_id, since_ms] for (topic, topic_id), since_ms in sorted(gone.items())]
        content = {"version": _VERSION, "cluster_id": self._cluster_id, "topics": topics}
        try:
            replace_file(self._filesystem, self._path, json.dumps(content).encode())
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error)
