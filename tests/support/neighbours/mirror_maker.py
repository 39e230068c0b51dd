"""Runs MirrorMaker 2 between an Ottla and an Apache Kafka, in both directions, as docs/operations.md describes.

The aliases of the clusters are `ottla` and `apache`. So the topic `orders` of Ottla is `ottla.orders` in Apache Kafka. All intervals are
short, and all topics of MirrorMaker have one replica. `TO_OTTLA_BY_NAME` are settings of a mirror that only goes to Ottla, and keeps names.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.support.apache_kafka.java import JavaServer
from tests.support.neighbours.artifacts import CONNECT, LOG4J

_CLUSTERS = ("ottla", "apache")
_ONE_REPLICA = (
    "replication.factor", "offset-syncs.topic.replication.factor", "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor", "config.storage.replication.factor", "offset.storage.replication.factor",
    "status.storage.replication.factor",
)  # fmt: skip
_EACH_SECOND = (
    "refresh.topics.interval.seconds", "refresh.groups.interval.seconds", "emit.checkpoints.interval.seconds",
    "sync.group.offsets.interval.seconds",
)  # fmt: skip
_A_SECOND = ("offset.flush.interval.ms", "scheduled.rebalance.max.delay.ms")
_DISCOVERY = "plugin.discovery"
TO_OTTLA_BY_NAME = {
    "ottla->apache.enabled": "false",
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
}


class MirrorMaker:
    """The process. `topics` and `groups` go from each cluster to the other, unless `settings` say otherwise."""

    def __init__(
        self,
        ottla: str,
        apache: str,
        directory: Path,
        topics: Sequence[str],
        groups: Sequence[str],
        *options: str,
        settings: Mapping[str, str],
    ) -> None:
        written = {
            "clusters": ", ".join(_CLUSTERS),
            "ottla.bootstrap.servers": ottla,
            "apache.bootstrap.servers": apache,
            "ottla->apache.enabled": "true",
            "apache->ottla.enabled": "true",
            "topics": ", ".join(topics),
            "groups": ", ".join(groups),
            "sync.group.offsets.enabled": "true",
            "tasks.max": "2",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            **dict.fromkeys(_ONE_REPLICA, "1"),
            **dict.fromkeys(_EACH_SECOND, "1"),
            _DISCOVERY: "service_load",  # to look through all jars would take seconds
            **{f"{alias}.{_DISCOVERY}": "service_load" for alias in _CLUSTERS},
            **{f"{alias}.{key}": "1000" for alias in _CLUSTERS for key in _A_SECOND},
            **settings,
        }
        properties = directory / "mirror-maker.properties"
        properties.write_text("".join(f"{key} = {value}\n" for key, value in written.items()), encoding="utf-8")
        self._command = [
            "java", *options, "-cp", f"{CONNECT.jars()}/*", f"-Dlog4j.configuration=file:{LOG4J}", f"-Djava.io.tmpdir={directory}",
            "org.apache.kafka.connect.mirror.MirrorMaker", str(properties),
        ]  # fmt: skip
        self._process = JavaServer("MirrorMaker 2", directory / "mirror-maker.log")

    def start(self) -> None:
        """Start the process and return at once."""
        self._process.launch(self._command)

    def stop(self) -> None:
        """SIGTERM: it commits what it has copied."""
        self._process.end()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.end(signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.running

    def said(self) -> str:
        """The log of its last run."""
        return self._process.said()


@contextmanager
def a_mirror_maker(
    ottla: str,
    apache: str,
    directory: Path,
    topics: Sequence[str],
    groups: Sequence[str],
    *options: str,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[MirrorMaker]:
    """Runs when the block begins; it may take seconds until it copies. `options` are those of its JVM."""
    directory.mkdir()
    mirror = MirrorMaker(ottla, apache, directory, topics, groups, *options, settings=settings)
    mirror.start()
    try:
        yield mirror
        assert mirror.is_running, "MirrorMaker has ended"
        mirror.stop()
    except BaseException:
        print(f"--- MirrorMaker\n{mirror.said()[-6_000:]}")
        raise
    finally:
        mirror.kill()
