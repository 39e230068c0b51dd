"""Holds the configurations of groups and of client metrics: their keys, the checks of new values, and the entries of DescribeConfigs.

Like a topic, a group has a value of its own, or that of the broker. Its value has to be within bounds that the broker has.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError, ResourceConfigError
from ottla.config.keys import groups_4, shares
from ottla.config.keys import groups_next as keys
from ottla.config.schema.describe import ConfigEntry, ConfigSource, ConfigSynonym
from ottla.config.schema.key import Key
from ottla.config.schema.types import Bool, Int, List, String, ValueType
from ottla.config.share_offset_reset import LATEST, check_offset_reset

MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000
DEFAULT_INTERVAL_MS: Final = 300_000

INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The properties of a client that `match` can compare with patterns."""


GroupConfigs: TypeAlias = Callable[[str], Mapping[str, str]]
"""The configuration of a group, as text by key."""


class ResourceKey(NamedTuple):
    """A key of a resource. Its default is that of a key of the broker, or a text."""

    type: ValueType[Any]
    of_broker: Key[Any] | None = None
    default: str = ""
    bounds: tuple[Key[Any] | int, Key[Any] | int] | None = None
    """The least and the greatest value, as numbers or by keys of the broker."""


GROUP_KEYS: Final[Mapping[str, ResourceKey]] = {
    "consumer.assignment.interval.ms": ResourceKey(
        Int(0),
        groups_4.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
        bounds=(groups_4.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS, groups_4.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS),
    ),
    "consumer.heartbeat.interval.ms": ResourceKey(
        Int(1),
        keys.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
        bounds=(keys.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS, keys.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS),
    ),
    "consumer.session.timeout.ms": ResourceKey(
        Int(1),
        keys.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
        bounds=(keys.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, keys.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
    ),
    "share.assignment.interval.ms": ResourceKey(
        Int(0),
        shares.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
        bounds=(shares.GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS, shares.GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS),
    ),
    "share.auto.offset.reset": ResourceKey(String(check=check_offset_reset), default=LATEST),
    "share.delivery.count.limit": ResourceKey(
        Int(2),
        keys.GROUP_SHARE_DELIVERY_COUNT_LIMIT,
        bounds=(shares.GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT, shares.GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT),
    ),
    "share.heartbeat.interval.ms": ResourceKey(
        Int(1),
        keys.GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
        bounds=(keys.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, keys.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
    ),
    "share.isolation.level": ResourceKey(String(choices=("read_committed", "read_uncommitted")), default="read_uncommitted"),
    "share.partition.max.record.locks": ResourceKey(
        Int(100),
        keys.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
        bounds=(shares.GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS, shares.GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS),
    ),
    "share.record.lock.duration.ms": ResourceKey(
        Int(1000),
        keys.GROUP_SHARE_RECORD_LOCK_DURATION_MS,
        bounds=(keys.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS, keys.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS),
    ),
    "share.renew.acknowledge.enable": ResourceKey(Bool(), default="true"),
    "share.session.timeout.ms": ResourceKey(
        Int(1),
        keys.GROUP_SHARE_SESSION_TIMEOUT_MS,
        bounds=(keys.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, keys.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    ),
}

CLIENT_METRICS_KEYS: Final[Mapping[str, ResourceKey]] = {
    INTERVAL: ResourceKey(Int(), default=str(DEFAULT_INTERVAL_MS)),
    MATCH: ResourceKey(List()),
    METRICS: ResourceKey(List()),
}

_TIMES: Final = (
    ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
)


def no_group_config(group_id: str) -> Mapping[str, str]:
    """The configuration of a group where no group has one of its own."""
    return {}


def within(text: str | None, default: int, least: int, most: int) -> int:
    """The value of a group, within the bounds of the broker, which may have changed since; the broker's own where there is none."""
    return default if text is None else min(max(int(text), least), most)


def validate_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises ConfigError for overrides that a group cannot have."""
    for name, text in overrides.items():
        declared = GROUP_KEYS.get(name)
        if declared is None:
            raise ConfigError(f"Unknown group config name: {name}")
        value = declared.type.parse(name, text)
        if declared.bounds is not None:
            least, most = (broker[bound] if isinstance(bound, Key) else bound for bound in declared.bounds)
            if not least <= value <= most:
                raise ConfigError(f"{name} must be in the range {least} to {most} inclusive.")
    for session, heartbeat in _TIMES:
        if int(_value(session, overrides, broker)) <= int(_value(heartbeat, overrides, broker)):
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def validate_client_metrics(overrides: Mapping[str, str], is_pattern: Callable[[str], bool]) -> None:
    """Raises ConfigError for a subscription that cannot be; ResourceConfigError where Apache Kafka answers INVALID_REQUEST."""
    for name in overrides:
        if name not in CLIENT_METRICS_KEYS:
            raise ResourceConfigError(f"Unknown client metrics configuration: {name}")
    if (interval := overrides.get(INTERVAL)) is not None:
        value = CLIENT_METRICS_KEYS[INTERVAL].type.parse(INTERVAL, interval)
        if not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
            raise ResourceConfigError(
                f"Invalid value {interval} for {INTERVAL}, interval must be between {MIN_INTERVAL_MS} and {MAX_INTERVAL_MS} (1 hour)"
            )
    for each, pattern in matches_of(overrides):
        if each.partition("=")[0].strip() not in MATCHED or pattern is None or not is_pattern(pattern):
            raise ConfigError(f"Illegal client matching pattern: {each}")


def matches_of(overrides: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """The parts of `match`, each with its pattern; None for a part without one."""
    parts: tuple[str, ...] = CLIENT_METRICS_KEYS[MATCH].type.parse(MATCH, overrides.get(MATCH, ""))
    return [(part, pattern.strip() if sign else None) for part in parts for _, sign, pattern in [part.partition("=")]]


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig, names: Iterable[str] | None) -> list[ConfigEntry]:
    """The entries of a group, all or those of `names`."""
    entries = []
    for name, declared in _wanted(GROUP_KEYS, names):
        of_broker = declared.of_broker
        synonyms = (_default(name, declared),) if of_broker is None else tuple(broker.synonyms_of(of_broker.name))
        entries.append(_entry(name, declared, overrides, ConfigSource.DYNAMIC_GROUP_CONFIG, synonyms, synonyms[0]))
    return entries


def describe_client_metrics(overrides: Mapping[str, str], names: Iterable[str] | None) -> list[ConfigEntry]:
    """The entries of a subscription, all or those of `names`. One that does not exist has the defaults."""
    return [
        _entry(name, declared, overrides, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG, (), _default(name, declared))
        for name, declared in _wanted(CLIENT_METRICS_KEYS, names)
    ]


def _wanted(known: Mapping[str, ResourceKey], names: Iterable[str] | None) -> list[tuple[str, ResourceKey]]:
    wanted = known.keys() if names is None else known.keys() & set(names)
    return [(name, known[name]) for name in sorted(wanted)]


def _default(name: str, declared: ResourceKey) -> ConfigSynonym:
    return ConfigSynonym(name, declared.default, ConfigSource.DEFAULT_CONFIG)


def _entry(
    name: str,
    declared: ResourceKey,
    overrides: Mapping[str, str],
    source: ConfigSource,
    synonyms: tuple[ConfigSynonym, ...],
    default: ConfigSynonym,
) -> ConfigEntry:
    own = (ConfigSynonym(name, overrides[name], source),) if name in overrides else ()
    first = own[0] if own else default
    return ConfigEntry(name, first.value, first.source, False, False, own + synonyms, declared.type.kind, None)


def _value(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> str:
    of_broker = GROUP_KEYS[name].of_broker
    assert of_broker is not None
    return overrides.get(name, str(broker[of_broker]))
