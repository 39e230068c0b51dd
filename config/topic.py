"""Holds the configuration of a topic: every topic key and its effective value.

A value comes from the topic's overrides, otherwise from the broker key that is its default. A `TopicConfig` is a
snapshot. Its holder builds a new one when the overrides change, or when `BrokerConfig.on_change` reports a broker key
in `BROKER_KEY_OF`.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from ottla.config.broker import BrokerConfig
from ottla.config.broker_keys import BROKER_KEYS
from ottla.config.errors import ConfigError, ConfigValueError, TopicConfigError
from ottla.config.keys import cleaner as broker_cleaner
from ottla.config.keys import general as broker_general
from ottla.config.keys import log as broker_log
from ottla.config.keys import replication as broker_replication
from ottla.config.keys import tiered as broker_tiered
from ottla.config.schema.describe import ConfigEntry, ConfigSource, ConfigSynonym
from ottla.config.schema.key import CLUSTER, DAY, LONG_MAX, LOW, MEDIUM, Importance, Key, key
from ottla.config.schema.metadata_version import is_at_least
from ottla.config.schema.types import Bool, ConfigKind, List, Long, ValueType

T = TypeVar("T")


def of_broker(
    broker: Key[T], *, type: ValueType[T] | None = None, default: T | None = None, importance: Importance = MEDIUM, doc: str | None = None
) -> Key[T]:
    """The topic key whose default is the broker key `broker`; type, default and doc are the broker key's unless given."""
    assert broker.topic is not None, broker.name
    return Key(
        name=broker.topic,
        type=broker.type if type is None else type,
        default=broker.default if default is None else default,
        importance=importance,
        dynamic=CLUSTER,
        doc=broker.doc if doc is None else doc,
        topic=None,
        otherwise=None,
        synonyms=(),
        standalone=broker.standalone,
        effective=broker.effective,
        internal=False,
        listener_only=False,
    )


CLEANUP_POLICY = of_broker(broker_log.LOG_CLEANUP_POLICY)
COMPRESSION_GZIP_LEVEL = of_broker(broker_log.COMPRESSION_GZIP_LEVEL)
COMPRESSION_LZ4_LEVEL = of_broker(broker_log.COMPRESSION_LZ4_LEVEL)
COMPRESSION_TYPE = of_broker(broker_log.COMPRESSION_TYPE)
COMPRESSION_ZSTD_LEVEL = of_broker(broker_log.COMPRESSION_ZSTD_LEVEL)
DELETE_RETENTION_MS = of_broker(broker_cleaner.LOG_CLEANER_DELETE_RETENTION_MS)
FILE_DELETE_DELAY_MS = of_broker(broker_log.LOG_SEGMENT_DELETE_DELAY_MS)
FLUSH_MESSAGES = of_broker(broker_log.LOG_FLUSH_INTERVAL_MESSAGES)
FLUSH_MS = of_broker(broker_log.LOG_FLUSH_INTERVAL_MS, type=Long(0), default=LONG_MAX)
INDEX_INTERVAL_BYTES = of_broker(broker_log.LOG_INDEX_INTERVAL_BYTES)
LOCAL_RETENTION_BYTES = of_broker(broker_tiered.LOG_LOCAL_RETENTION_BYTES)
LOCAL_RETENTION_MS = of_broker(broker_tiered.LOG_LOCAL_RETENTION_MS)
MAX_COMPACTION_LAG_MS = of_broker(broker_cleaner.LOG_CLEANER_MAX_COMPACTION_LAG_MS)
MAX_MESSAGE_BYTES = of_broker(broker_log.MESSAGE_MAX_BYTES)
MESSAGE_DOWNCONVERSION_ENABLE = of_broker(broker_log.LOG_MESSAGE_DOWNCONVERSION_ENABLE, importance=LOW)
MESSAGE_FORMAT_VERSION = of_broker(broker_log.LOG_MESSAGE_FORMAT_VERSION)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = of_broker(broker_log.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = of_broker(broker_log.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS)
MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS = of_broker(broker_log.LOG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS)
MESSAGE_TIMESTAMP_TYPE = of_broker(broker_log.LOG_MESSAGE_TIMESTAMP_TYPE)
MIN_CLEANABLE_DIRTY_RATIO = of_broker(broker_cleaner.LOG_CLEANER_MIN_CLEANABLE_RATIO)
MIN_COMPACTION_LAG_MS = of_broker(broker_cleaner.LOG_CLEANER_MIN_COMPACTION_LAG_MS)
MIN_INSYNC_REPLICAS = of_broker(broker_general.MIN_INSYNC_REPLICAS)
PREALLOCATE = of_broker(broker_log.LOG_PREALLOCATE)
RETENTION_BYTES = of_broker(broker_log.LOG_RETENTION_BYTES)
RETENTION_MS = of_broker(broker_log.LOG_RETENTION_MS, type=Long(-1), default=7 * DAY)
SEGMENT_BYTES = of_broker(broker_log.LOG_SEGMENT_BYTES)
SEGMENT_INDEX_BYTES = of_broker(broker_log.LOG_INDEX_SIZE_MAX_BYTES)
SEGMENT_JITTER_MS = of_broker(broker_log.LOG_ROLL_JITTER_MS, type=Long(0), default=0)
SEGMENT_MS = of_broker(broker_log.LOG_ROLL_MS, type=Long(1), default=7 * DAY)
UNCLEAN_LEADER_ELECTION_ENABLE = of_broker(broker_replication.UNCLEAN_LEADER_ELECTION_ENABLE)

_REPLICA = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?")  # Python reads no number of thousands of digits


def _check_throttled_replicas(name: str, replicas: tuple[str, ...]) -> None:
    """Raises ConfigValueError unless `replicas` is `*` or partition:broker pairs."""
    if "".join(replicas).strip() == "*" or all(_REPLICA.fullmatch(replica.strip()) for replica in replicas):
        return
    wanted = (
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )
    raise ConfigValueError(name, f"[{', '.join(replicas)}]", wanted)


_THROTTLED_REPLICAS = List(check=_check_throttled_replicas, described_as="[partitionId]:[brokerId],[partitionId]:[brokerId],...")
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = key(
    "follower.replication.throttled.replicas",
    _THROTTLED_REPLICAS,
    default=(),
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="The replicas (partition:broker, or * for all) whose fetches count towards follower.replication.throttled.rate.",
)
LEADER_REPLICATION_THROTTLED_REPLICAS = key(
    "leader.replication.throttled.replicas",
    _THROTTLED_REPLICAS,
    default=(),
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="The replicas (partition:broker, or * for all) whose fetches from the leader count towards leader.replication.throttled.rate.",
)
REMOTE_STORAGE_ENABLE = key(
    "remote.storage.enable",
    Bool(),
    default=False,
    importance=MEDIUM,
    dynamic=CLUSTER,
    effective=True,
    doc="Copies closed segments of the topic to the remote store.",
)
REMOTE_LOG_COPY_DISABLE = key(
    "remote.log.copy.disable",
    Bool(),
    default=False,
    importance=MEDIUM,
    dynamic=CLUSTER,
    doc="Keeps what is in the remote store readable but copies nothing more to it.",
)
REMOTE_LOG_DELETE_ON_DISABLE = key(
    "remote.log.delete.on.disable",
    Bool(),
    default=False,
    importance=MEDIUM,
    dynamic=CLUSTER,
    doc="Deletes what is in the remote store when remote.storage.enable is set to false.",
)

TOPIC_KEYS: Mapping[str, Key[Any]] = MappingProxyType({each.name: each for each in list(vars().values()) if isinstance(each, Key)})
BROKER_KEY_OF: Mapping[str, Key[Any]] = MappingProxyType({each.topic: each for each in BROKER_KEYS.values() if each.topic is not None})
"""Broker key that is the default of a topic key, by the topic key's name."""


class TopicConfig:
    """The effective values for one topic. Immutable."""

    __slots__ = ("_broker", "_given", "_values", "overrides")

    def __init__(self, overrides: Mapping[str, str], broker: BrokerConfig) -> None:
        """Raises ConfigValueError for an invalid value. Unknown names, which a later version may have stored, are kept
        and have no effect."""
        self.overrides = MappingProxyType(dict(overrides))
        self._broker = broker
        self._given = _given(overrides, broker)
        self._values = _in_force(self._given, broker)

    def __getitem__(self, key: Key[T]) -> T:
        """The effective value."""
        return cast(T, self._values[key])

    @property
    def allows_zstd(self) -> bool:
        """Whether every broker of the cluster can read zstd, as inter.broker.protocol.version says (KIP-110)."""
        return is_at_least(self._broker[broker_replication.INTER_BROKER_PROTOCOL_VERSION], _FIRST_WITH_ZSTD)

    @property
    def has_remote_store(self) -> bool:
        """Whether the broker has a remote store, from which records of the topic may be read."""
        return self._broker[broker_tiered.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]

    @property
    def has_remote_storage(self) -> bool:
        """Whether closed segments go to the remote store (KIP-405). Compacted topics never have it."""
        enabled = self._values[REMOTE_STORAGE_ENABLE] and self.has_remote_store
        return enabled and "compact" not in self._values[CLEANUP_POLICY]

    def describe(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The entries of the TOPIC resource; all of them, or those of `names` that exist."""
        wanted = None if names is None else set(names)
        found = {key.name: key.render(value) for key, value in self._given.items() if wanted is None or key.name in wanted}
        for name, text in self.overrides.items():
            if wanted is None or name in wanted:
                found.setdefault(name, text)
        return [self._entry(name, value) for name, value in sorted(found.items())]

    def _entry(self, name: str, value: str | None) -> ConfigEntry:
        key = TOPIC_KEYS.get(name)
        shown = None if key is None else value
        synonyms = list(self._broker.synonyms_of(BROKER_KEY_OF[name].name)) if name in BROKER_KEY_OF else []
        if name in self.overrides:
            synonyms.insert(0, ConfigSynonym(name, shown, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        return ConfigEntry(
            name=name,
            value=shown,
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            read_only=False,
            sensitive=key is None,
            synonyms=tuple(synonyms),
            kind=ConfigKind.UNKNOWN if key is None else key.type.kind,
            documentation=None if key is None else key.doc,
        )


def validate_topic_overrides(overrides: Mapping[str, str], broker: BrokerConfig, existing: Mapping[str, str] | None = None) -> None:
    """Raises TopicConfigError or ConfigValueError unless a topic may have these overrides; `existing` are its current
    ones.

    TopicConfigError: an unknown name, or overrides that contradict each other. ConfigValueError: an invalid value.
    """
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise TopicConfigError(f"Unknown topic config name: {name}")
    values = _given(overrides, broker)
    shortest, longest = values[MIN_COMPACTION_LAG_MS], values[MAX_COMPACTION_LAG_MS]
    if shortest > longest:
        raise TopicConfigError(
            f"conflict topic config setting {MIN_COMPACTION_LAG_MS.name} ({shortest}) > {MAX_COMPACTION_LAG_MS.name} ({longest})"
        )
    was_remote = (existing or {}).get(REMOTE_STORAGE_ENABLE.name, "false").lower() == "true"
    check_remote_storage(values, remote_system=broker[broker_tiered.REMOTE_LOG_STORAGE_SYSTEM_ENABLE], was_remote=was_remote)
    between_brokers = broker[broker_replication.INTER_BROKER_PROTOCOL_VERSION]
    if values[REMOTE_STORAGE_ENABLE] and not was_remote and not is_at_least(between_brokers, _FIRST_WITH_REMOTE_STORAGE):
        raise ConfigError(
            f"Remote log storage needs {broker_replication.INTER_BROKER_PROTOCOL_VERSION.name} {_FIRST_WITH_REMOTE_STORAGE} or newer: "
            "followers of older releases do not learn that records are in the remote store only"
        )


def check_remote_storage(values: Mapping[Key[Any], Any], *, remote_system: bool, was_remote: bool) -> None:
    """Checks the rules of tiered storage for one topic in a cluster with ZooKeeper. Raises TopicConfigError or
    ConfigError."""
    if values[REMOTE_LOG_DELETE_ON_DISABLE] or values[REMOTE_LOG_COPY_DISABLE]:
        raise TopicConfigError("It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode.")
    if not values[REMOTE_STORAGE_ENABLE]:
        if was_remote:
            raise TopicConfigError(
                "It is invalid to disable remote storage without deleting remote data. "
                "If you want to keep the remote data and turn to read only, please set "
                "`remote.storage.enable=true,remote.log.copy.disable=true`. "
                "If you want to disable remote storage and delete all remote data, please set "
                "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
            )
        return
    if not remote_system:
        raise ConfigError("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
    if "compact" in values[CLEANUP_POLICY]:
        raise ConfigError("Remote log storage is unsupported for the compacted topics")
    check_local_retention(LOCAL_RETENTION_BYTES, values[LOCAL_RETENTION_BYTES], RETENTION_BYTES, values[RETENTION_BYTES])
    check_local_retention(LOCAL_RETENTION_MS, values[LOCAL_RETENTION_MS], RETENTION_MS, values[RETENTION_MS])


def check_local_retention(local: Key[int], local_value: int, total: Key[int], total_value: int) -> None:
    """Raises ConfigValueError if records would stay on the broker for longer than they stay at all."""
    if total_value < 0 or local_value == -2:  # retention.bytes has no lower bound; below 0 it is no limit
        return
    if local_value == -1:
        raise ConfigValueError(local.name, local_value, f"Value must not be -1 as {total.name} value is set as {total_value}.")
    if local_value > total_value:
        raise ConfigValueError(local.name, local_value, f"Value must not be more than {total.name} property value: {total_value}")


def _given(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[Key[Any], Any]:
    values: dict[Key[Any], Any] = {}
    for name, each in TOPIC_KEYS.items():
        if name in overrides:
            values[each] = each.parse(overrides[name])
        elif name in BROKER_KEY_OF:
            values[each] = broker[BROKER_KEY_OF[name]]
        else:
            values[each] = each.default
    for bound in _TIMESTAMP_BOUNDS:
        # The broker's older key replaces the keys that superseded it, as long as they have their default.
        if bound.name not in overrides and values[bound] == LONG_MAX:
            values[bound] = broker[broker_log.LOG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS]
    if MESSAGE_FORMAT_VERSION.name not in overrides and is_at_least(
        broker[broker_replication.INTER_BROKER_PROTOCOL_VERSION], _FIRST_WITHOUT_FORMATS
    ):
        values[MESSAGE_FORMAT_VERSION] = MESSAGE_FORMAT_VERSION.default
    return values


def _in_force(given: Mapping[Key[Any], Any], broker: BrokerConfig) -> dict[Key[Any], Any]:
    """The values for the log: like `given`, but values that refer to another key are replaced by that key's value.

    As in Apache Kafka 3.9 a message format needs an inter.broker.protocol.version before 3.0 that is not older than the format.
    The broker's format replaces one of a topic that is too new.
    """
    values = dict(given)
    between_brokers = broker[broker_replication.INTER_BROKER_PROTOCOL_VERSION]
    if is_at_least(between_brokers, _FIRST_WITHOUT_FORMATS):
        values[MESSAGE_FORMAT_VERSION] = MESSAGE_FORMAT_VERSION.default
    elif not is_at_least(between_brokers, values[MESSAGE_FORMAT_VERSION]):
        values[MESSAGE_FORMAT_VERSION] = broker[broker_log.LOG_MESSAGE_FORMAT_VERSION]
    for bound in _TIMESTAMP_BOUNDS:
        if values[bound] == LONG_MAX:
            values[bound] = values[MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS]
    if values[LOCAL_RETENTION_MS] == -2:
        values[LOCAL_RETENTION_MS] = values[RETENTION_MS]
    if values[LOCAL_RETENTION_BYTES] == -2:
        values[LOCAL_RETENTION_BYTES] = values[RETENTION_BYTES]
    return values


_TIMESTAMP_BOUNDS = (MESSAGE_TIMESTAMP_BEFORE_MAX_MS, MESSAGE_TIMESTAMP_AFTER_MAX_MS)
_FIRST_WITHOUT_FORMATS = "3.0-IV1"
_FIRST_WITH_REMOTE_STORAGE = "3.5-IV0"
"""It has versions 14 of Fetch and 8 of ListOffsets. Topics have ids since 2.8."""
_FIRST_WITH_ZSTD = "2.1-IV0"
