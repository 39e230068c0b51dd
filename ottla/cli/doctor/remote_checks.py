"""Judges tiered storage: a cluster's copies of segments by its metadata and offsets, and the remote store of a broker by its answers."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.cli.doctor.kinds import Finding, call, found, some
from ottla.client.errors import Refused
from ottla.client.offsets import EARLIEST, list_offsets, reachable_offsets
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.log import LOG_DIRS
from ottla.config.keys.tiered import REMOTE_LOG_STORAGE_SYSTEM_ENABLE
from ottla.config.remote_store import store_settings
from ottla.config.validation import log_dirs
from ottla.protocol.errors import ErrorCode
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.index_cache import was_used_in
from ottla.storage.remote.local_layout import ROOT

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

ENABLE: Final = "remote.storage.enable"
SEGMENT_MS: Final = "segment.ms"
METADATA_TOPIC: Final = "__remote_log_metadata"
PATIENCE_MS: Final = 3_600_000
"""Time within which a closed segment has to be copied."""
Configs = Mapping[str, Mapping[str, str]]
"""Topic -> the examined keys and their values."""
_LATEST_TIERED: Final = -5
_OF_STORE: Final = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE)
"""The answers to a search by time whose records cannot be read in the store."""
_DEFAULT_SEGMENT_MS: Final = 604_800_000


@dataclass
class RemoteFacts:
    """The tiered storage of a cluster."""

    copied_topics: dict[str, int] = field(default_factory=dict)
    """Topics with finished copies, by name, and the number of these."""
    behind: dict[str, int] = field(default_factory=dict)
    """Partitions with records that should be in the store, and the first offset of those."""
    gaps: dict[str, str] = field(default_factory=dict)
    """Partitions with offsets that neither the store nor their leader has, and these offsets."""
    unread: dict[str, str] = field(default_factory=dict)
    """Partitions whose leaders cannot read them in the store now, and the error."""
    degraded: dict[int, str] = field(default_factory=dict)
    """Brokers that say that their store does not answer, and what they say."""


def ask_remote(
    facts: RemoteFacts, cluster: "Cluster", configs: Mapping[str, Mapping[str, str]], topics: Mapping[str, Sequence[int]], now_ms: int
) -> None:
    """Asks for the copies of a cluster with tiered storage. `topics` has the partitions of each. Raises ClientError."""
    if METADATA_TOPIC not in topics:
        return
    from ottla.cli.remote.gaps import missing_ranges, partitions_of
    from ottla.cli.remote.stored_copies import known_copies
    from ottla.storage.remote.lineage import some_ranges

    known = known_copies(cluster)
    for entry, is_read in known:
        if is_read:
            name = entry.id.partition.topic
            facts.copied_topics[name] = facts.copied_topics.get(name, 0) + 1
    names = [topic for topic in topics if configs.get(topic, {}).get(ENABLE) == "true"]
    wanted = [TopicPartition(topic, index) for topic in names for index in topics[topic]]
    if not wanted:
        return
    gaps = missing_ranges(cluster, partitions_of(cluster, names), [entry for entry, _ in known])
    facts.gaps = {f"{each.topic}-{each.partition}": some_ranges(ranges) for each, ranges in gaps.items()}
    tiered = list_offsets(cluster, dict.fromkeys(wanted, _LATEST_TIERED))
    starts = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    recent, unread = reachable_offsets(cluster, dict.fromkeys(wanted, now_ms - PATIENCE_MS))
    times = {each: now_ms - PATIENCE_MS - _segment_ms(configs[each.topic]) for each in wanted if each in recent}
    due, errors = reachable_offsets(cluster, times)
    refused = {each: error for each, error in (unread | errors).items() if isinstance(error, Refused)}
    facts.unread = {str(each): str(error) for each, error in refused.items() if error.code in _OF_STORE}
    for partition in due:
        first = max(tiered[partition].offset + 1, starts[partition].offset)
        # A record of the last hour has closed every segment that began more than segment.ms before that.
        if recent[partition] >= 0 and first < due[partition]:
            facts.behind[str(partition)] = first


def check_remote(facts: RemoteFacts, configs: Configs, topics: Mapping[str, Sequence[int]]) -> Iterator[Finding]:
    """All findings about the copies of a cluster."""
    for topic, count in facts.copied_topics.items():
        if topic not in topics:
            yield found(
                "remote-copies-unowned",
                f"{count} copies of the deleted topic {topic} are in the remote store",
                "start all brokers that led it: they delete the copies; others the broker of the controller deletes within two days",
            )
        elif topic in configs and configs[topic].get(ENABLE) != "true":
            yield found(
                "remote-storage-lost",
                f"{topic} has {count} copies in the remote store, and {ENABLE} is not true",
                call("ottla configs alter topic", topic, f"--set {ENABLE}=true"),
            )
    if facts.degraded:
        yield found(
            "remote-store-degraded",
            some([f"broker {broker_id}: {reason}" for broker_id, reason in facts.degraded.items()]),
            "ottla doctor server.properties on their hosts asks the store; see docs/operations.md: When the remote store fails",
        )
    elif facts.unread:
        yield found(
            "remote-store-degraded",
            f"leaders cannot read old records in the remote store: {some([*facts.unread])}",
            "ottla doctor server.properties on their hosts asks the store; /health at their metrics listeners has the reason",
        )
    if facts.gaps:
        yield found(
            "remote-records-missing",
            f"neither the remote store nor the leader has some offsets: {some([f'{name} {text}' for name, text in facts.gaps.items()])}",
            "ottla remote scrub, then see docs/operations.md: When the remote store fails",
        )
    if facts.behind:
        named = [f"{partition} from offset {offset} on" for partition, offset in facts.behind.items()]
        yield found(
            "remote-copies-behind",
            f"closed segments are not in the remote store for more than an hour: {some(named)}",
            "look for 'remote storage task failed' in the log of the leaders; ottla doctor server.properties there asks the store",
        )


def check_remote_store(config: BrokerConfig) -> Iterator[Finding]:
    """Whether the remote store of a broker answers and accepts it. Asks the store."""
    if not config[REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
        return
    try:
        if not _is_made_by_the_start(store_settings(config).directory, log_dirs(config[LOG_DIRS])):
            asyncio.run(_probe(config))
    except ConfigError as error:
        yield found("remote-store-unusable", str(error), "correct the keys rsm.config.*, or make the store reachable")


def _is_made_by_the_start(store: str | None, log_directories: Sequence[str]) -> bool:
    """Whether the folder of a store in a directory is missing because no broker with these log directories has used it yet."""
    if store is None or was_used_in(RealFileSystem(), log_directories):
        return False
    return os.path.isdir(store) and os.access(store, os.W_OK | os.X_OK) and not os.path.lexists(os.path.join(store, ROOT))


async def _probe(config: BrokerConfig) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from ottla.broker.loop.clock import SystemClock
    from ottla.broker.remote.remote_storage import RemoteStorage

    with ThreadPoolExecutor(1) as threads:
        storage = RemoteStorage(config, RealFileSystem(), threads, SystemClock())
        await storage.probe(starts=False)
        await storage.close()


def _segment_ms(config: Mapping[str, str]) -> int:
    value = config.get(SEGMENT_MS, "")
    return int(value) if value.isdigit() else _DEFAULT_SEGMENT_MS
