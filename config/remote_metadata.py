"""Reads the keys of `rlmm.config.*`: how the topic with the metadata of remote segments is created and used."""

from typing import Final, NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.keys.tiered import REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX, REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME
from ottla.config.schema.types import Int, Long, ValueType

_PARTITIONS: Final = "remote.log.metadata.topic.num.partitions"
_REPLICATION_FACTOR: Final = "remote.log.metadata.topic.replication.factor"
_RETENTION_MS: Final = "remote.log.metadata.topic.retention.ms"
_CONSUME_WAIT_MS: Final = "remote.log.metadata.consume.wait.ms"
_RETRY_INTERVAL_MS: Final = "remote.log.metadata.initialization.retry.interval.ms"
_RETRY_MAX_TIMEOUT_MS: Final = "remote.log.metadata.initialization.retry.max.timeout.ms"
_KEYS: Final[dict[str, tuple[ValueType[int], int]]] = {
    _PARTITIONS: (Int(1), 50),
    _REPLICATION_FACTOR: (Int(1), 3),
    _RETENTION_MS: (Long(1, or_else=-1), -1),
    _CONSUME_WAIT_MS: (Long(0), 120_000),
    _RETRY_INTERVAL_MS: (Long(0), 100),
    _RETRY_MAX_TIMEOUT_MS: (Long(0), 120_000),
}
"""Types and defaults of TopicBasedRemoteLogMetadataManagerConfig."""


class MetadataSettings(NamedTuple):
    """The settings of `__remote_log_metadata`. The initialisation is repeated without an end, with growing pauses."""

    partitions: int
    replication_factor: int
    retention_ms: int
    consume_wait_ms: int
    retry_interval_ms: int
    listener_name: str
    """The listener of the brokers that this broker writes to and reads from, with its own credentials."""
    ignored: tuple[str, ...]
    """Given keys that configure clients of Java, or that no release knows."""


def metadata_settings(config: BrokerConfig) -> MetadataSettings:
    """Returns the settings of a broker. Raises ConfigError."""
    prefix = config[REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX]
    given = {name.removeprefix(prefix): text for name, text in config.static.items() if name.startswith(prefix)}
    # A broker that is alone cannot have three replicas, as with the other topics that brokers create.
    defaults = {_REPLICATION_FACTOR: 1} if config.standalone else {}
    values = {
        name: kind.parse(prefix + name, given[name]) if name in given else defaults.get(name, default)
        for name, (kind, default) in _KEYS.items()
    }
    return MetadataSettings(
        values[_PARTITIONS],
        values[_REPLICATION_FACTOR],
        values[_RETENTION_MS],
        values[_CONSUME_WAIT_MS],
        values[_RETRY_INTERVAL_MS],
        config[REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME] or config.listeners.inter_broker_listener_name,
        tuple(sorted(given.keys() - _KEYS.keys())),
    )
