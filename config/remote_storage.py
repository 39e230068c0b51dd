"""Checks the keys of tiered storage (KIP-405) at the start, with the texts of Apache Kafka where it has one."""

from collections.abc import Iterable, Mapping

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError, ConfigValueError
from ottla.config.keys.log import LOG_RETENTION_BYTES, LOG_RETENTION_MS
from ottla.config.keys.tiered import (
    LOG_LOCAL_RETENTION_BYTES,
    LOG_LOCAL_RETENTION_MS,
    REMOTE_LOG_METADATA_MANAGER_CLASS_NAME,
    REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME,
    REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME,
    REMOTE_LOG_STORAGE_SYSTEM_ENABLE,
)
from ottla.config.remote_metadata import metadata_settings
from ottla.config.topic import (
    LOCAL_RETENTION_BYTES,
    LOCAL_RETENTION_MS,
    REMOTE_STORAGE_ENABLE,
    RETENTION_BYTES,
    RETENTION_MS,
    check_local_retention,
)

LOCAL_TIERED_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
AIVEN_REMOTE_STORAGE = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
STORES = (LOCAL_TIERED_STORAGE, AIVEN_REMOTE_STORAGE)
"""The classes of Java whose stores this broker has, so that one server.properties serves both kinds of brokers."""
_DISABLED_TOO_EARLY = (
    f"You have to delete all topics with the property {REMOTE_STORAGE_ENABLE.name}=true before disabling tiered storage cluster-wide"
)


def check_remote_storage(config: BrokerConfig) -> None:
    """Raises ConfigError unless a broker with tiered storage knows its store and its metadata, and reaches the latter by a listener."""
    if not config[REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
        return
    name = config[REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME]
    if name not in STORES:
        reason = f"Value must be the class of a store that this broker has: {','.join(STORES)}"
        raise ConfigValueError(REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME.name, name, reason)
    name = config[REMOTE_LOG_METADATA_MANAGER_CLASS_NAME]
    if name != REMOTE_LOG_METADATA_MANAGER_CLASS_NAME.default:
        reason = f"Value must be {REMOTE_LOG_METADATA_MANAGER_CLASS_NAME.default}"
        raise ConfigValueError(REMOTE_LOG_METADATA_MANAGER_CLASS_NAME.name, name, reason)
    listener = config[REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME]
    names = [endpoint.listener_name for endpoint in config.listeners.advertised]
    if listener is not None and listener not in names:
        reason = f"Should be set as a listener name within valid broker listener name list: {','.join(names)}"
        raise ConfigValueError(REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME.name, listener, reason)
    # Apache Kafka, too, names the keys of topics here.
    check_local_retention(LOCAL_RETENTION_BYTES, config[LOG_LOCAL_RETENTION_BYTES], RETENTION_BYTES, config[LOG_RETENTION_BYTES])
    check_local_retention(LOCAL_RETENTION_MS, config[LOG_LOCAL_RETENTION_MS], RETENTION_MS, config[LOG_RETENTION_MS])
    metadata_settings(config)  # its own errors, before the start writes anything


def check_no_topic_is_tiered(config: BrokerConfig, overrides: Iterable[Mapping[str, str]]) -> None:
    """Raises ConfigError if a topic has remote storage and the broker has none: its remote records could not be read."""
    if config[REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
        return
    for each in overrides:
        if each.get(REMOTE_STORAGE_ENABLE.name, "").strip().lower() == "true":
            raise ConfigError(_DISABLED_TOO_EARLY)
