"""Checks broker keys against each other. The order of the checks and their texts are Kafka's.

Called for the static properties at startup, and for every dynamic change before it takes effect.
"""

import logging
import re
from collections.abc import Iterable

from ottla.config.broker_keys import BROKER_KEYS, LISTENER_PREFIX, key_of
from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigConflictError, ConfigError
from ottla.config.keys.cleaner import (
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    LOG_CLEANER_THREADS,
)
from ottla.config.keys.general import BROKER_ID, BROKER_ID_GENERATION_ENABLE, RESERVED_BROKER_MAX_ID
from ottla.config.keys.groups import OFFSETS_COMMIT_REQUIRED_ACKS, OFFSETS_TOPIC_COMPRESSION_CODEC, OFFSETS_TOPIC_REPLICATION_FACTOR
from ottla.config.keys.groups_next import (
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_COORDINATOR_REBALANCE_PROTOCOLS,
    GROUP_SHARE_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
    GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_SESSION_TIMEOUT_MS,
)
from ottla.config.keys.kraft import NODE_ID, PROCESS_ROLES
from ottla.config.keys.log import LOG_DIRS, LOG_MESSAGE_FORMAT_VERSION, LOG_RETENTION_MS, LOG_ROLL_JITTER_MS, LOG_ROLL_MS
from ottla.config.keys.network import (
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    QUEUED_MAX_REQUEST_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
)
from ottla.config.keys.replication import (
    INTER_BROKER_PROTOCOL_VERSION,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_LAG_TIME_MAX_MS,
    REPLICA_SOCKET_TIMEOUT_MS,
)
from ottla.config.keys.security import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    CONNECTIONS_MAX_REAUTH_MS,
    LISTENER_MECHANISM_KEYS,
    PRINCIPAL_BUILDER_CLASS,
    SASL_ENABLED_MECHANISMS,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
)
from ottla.config.keys.shares import (
    GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
)
from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT, ZOOKEEPER_METADATA_MIGRATION_ENABLE
from ottla.config.listeners import BrokerListeners, SecurityProtocol, broker_listeners, parse_pairs
from ottla.config.sasl import MECHANISMS
from ottla.config.schema.key import Key, MiB
from ottla.config.schema.metadata_version import is_at_least
from ottla.config.zookeeper_connect import parse_zookeeper_connect

log = logging.getLogger(__name__)

_FAMILIES_OF_LISTENERS = ("sasl.", "ssl.")
_KEYS_OF_LISTENERS = (CONNECTIONS_MAX_REAUTH_MS, MAX_CONNECTION_CREATION_RATE, MAX_CONNECTIONS, PRINCIPAL_BUILDER_CLASS)
"""The keys that a listener may have for itself, beside those two families."""

_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")
_CODECS = range(5)
_MOST_DIGITS = 10
"""Digits of the largest number of connections; Python refuses to read a number of thousands of digits."""


def validate(properties: BrokerProperties) -> BrokerListeners:
    """The listeners of `properties`. Raises ConfigError when any of the properties contradict each other."""
    _check_mode(properties)
    _check_zookeeper(properties)
    _check_groups(properties)
    _check_broker_id(properties)
    _check_log(properties)
    _check_replication(properties)
    listeners = broker_listeners(properties)
    _check_versions(properties)
    _check_sasl(properties, listeners)
    _check_connections(properties)
    return listeners


def max_connections_per_ip_overrides(text: str) -> dict[str, int]:
    """Host to limit. Raises ConfigError unless `text` consists of host:count pairs."""
    name = MAX_CONNECTIONS_PER_IP_OVERRIDES.name
    limits: dict[str, int] = {}
    for host, limit in parse_pairs(name, text).items():
        if not limit.isdecimal() or len(limit) > _MOST_DIGITS:
            raise ConfigError(f"Error parsing configuration property '{name}': '{limit}' is not a number of connections")
        limits[host] = int(limit)
    return limits


def _require(satisfied: bool, message: str) -> None:
    if not satisfied:
        raise ConfigConflictError(message)


def _check_mode(properties: BrokerProperties) -> None:
    asked = next((key.name for key in (PROCESS_ROLES, ZOOKEEPER_METADATA_MIGRATION_ENABLE) if properties.given[key]), None)
    if asked is not None:
        raise ConfigError(
            f"{asked} asks for KRaft, which this server does not have: remove it and the controller.* keys; "
            "the metadata is kept in ZooKeeper (zookeeper.connect) or, without it, in the broker's own store"
        )


def _check_zookeeper(properties: BrokerProperties) -> None:
    connect = properties[ZOOKEEPER_CONNECT]
    if connect is not None:
        parse_zookeeper_connect(connect)


def _check_groups(properties: BrokerProperties) -> None:
    protocols = {protocol.upper() for protocol in properties[GROUP_COORDINATOR_REBALANCE_PROTOCOLS]}
    if "CLASSIC" not in protocols:
        raise ConfigError("Disabling the 'classic' protocol is not supported.")
    if "CONSUMER" in protocols and not properties.standalone:
        raise ConfigError("The new 'consumer' rebalance protocol is only supported in KRaft cluster.")
    acks = properties[OFFSETS_COMMIT_REQUIRED_ACKS]
    if not -1 <= acks <= properties[OFFSETS_TOPIC_REPLICATION_FACTOR]:
        raise ConfigError(
            f"{OFFSETS_COMMIT_REQUIRED_ACKS.name} must be greater or equal to -1 and "
            f"less or equal to {OFFSETS_TOPIC_REPLICATION_FACTOR.name}"
        )
    if properties[OFFSETS_TOPIC_COMPRESSION_CODEC] not in _CODECS:
        raise ConfigError(f"Unknown compression type id: {properties[OFFSETS_TOPIC_COMPRESSION_CODEC]}")
    for least, value, most in _BETWEEN:
        if properties[most] < properties[least]:
            raise ConfigError(f"{most.name} must be greater than or equals to {least.name}")
        if properties[value] < properties[least]:
            raise ConfigError(f"{value.name} must be greater than or equals to {least.name}")
        if properties[value] > properties[most]:
            raise ConfigError(f"{value.name} must be less than or equals to {most.name}")


def _check_broker_id(properties: BrokerProperties) -> None:
    broker_id = properties[BROKER_ID]
    if properties[NODE_ID] != broker_id:
        raise ConfigError(f"You must set `{NODE_ID.name}` to the same value as `{BROKER_ID.name}`.")
    if properties[BROKER_ID_GENERATION_ENABLE]:
        _require(
            -1 <= broker_id <= properties[RESERVED_BROKER_MAX_ID],
            f"{BROKER_ID.name} must be greater than or equal to -1 and not greater than {RESERVED_BROKER_MAX_ID.name}",
        )
    else:
        _require(broker_id >= 0, f"{BROKER_ID.name} must be greater than or equal to 0")


def _check_log(properties: BrokerProperties) -> None:
    _require(properties[LOG_ROLL_MS] >= 1, f"{LOG_ROLL_MS.name} must be greater than or equal to 1")
    _require(properties[LOG_ROLL_JITTER_MS] >= 0, f"{LOG_ROLL_JITTER_MS.name} must be greater than or equal to 0")
    _require(properties[LOG_RETENTION_MS] != 0, f"{LOG_RETENTION_MS.name} must be unlimited (-1) or, greater than or equal to 1")
    _require(any(log_dirs(properties[LOG_DIRS])), "At least one log directory must be defined via log.dirs or log.dir.")
    if properties[LOG_CLEANER_THREADS] < 1:
        raise ConfigError("Log cleaner threads should be at least 1")
    _require(
        properties[LOG_CLEANER_DEDUPE_BUFFER_SIZE] // properties[LOG_CLEANER_THREADS] > MiB,
        f"{LOG_CLEANER_DEDUPE_BUFFER_SIZE.name} must be at least 1MB per cleaner thread.",
    )
    shortest, longest = properties[LOG_CLEANER_MIN_COMPACTION_LAG_MS], properties[LOG_CLEANER_MAX_COMPACTION_LAG_MS]
    if shortest > longest:
        raise ConfigError(f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})")


def log_dirs(text: str) -> list[str]:
    """The directories of log.dirs, in order."""
    return [directory.strip() for directory in text.split(",") if directory.strip()]


def _check_replication(properties: BrokerProperties) -> None:
    wait = properties[REPLICA_FETCH_WAIT_MAX_MS]
    _require(
        wait <= properties[REPLICA_SOCKET_TIMEOUT_MS],
        f"{REPLICA_SOCKET_TIMEOUT_MS.name} should always be at least {REPLICA_FETCH_WAIT_MAX_MS.name} "
        "to prevent unnecessary socket timeouts",
    )
    _require(
        wait <= properties[REPLICA_LAG_TIME_MAX_MS],
        f"{REPLICA_FETCH_WAIT_MAX_MS.name} should always be less than or equal to {REPLICA_LAG_TIME_MAX_MS.name} "
        "to prevent frequent changes in ISR",
    )


def _check_versions(properties: BrokerProperties) -> None:
    between_brokers = properties[INTER_BROKER_PROTOCOL_VERSION]
    if is_at_least(between_brokers, "3.0-IV1"):
        return
    for format_version, needed in (("0.11.0-IV0", "0.11.0"), ("0.10.0-IV0", "0.10.0")):
        if is_at_least(properties[LOG_MESSAGE_FORMAT_VERSION], format_version):
            _require(
                is_at_least(between_brokers, format_version),
                f"{LOG_MESSAGE_FORMAT_VERSION.name} {properties[LOG_MESSAGE_FORMAT_VERSION]} can only be used when "
                f"{INTER_BROKER_PROTOCOL_VERSION.name} is set to version {needed} or higher",
            )
            return


def _check_sasl(properties: BrokerProperties, listeners: BrokerListeners) -> None:
    if listeners.inter_broker_security_protocol not in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}:
        return
    mechanisms = properties.for_listener(listeners.inter_broker_listener_name)[SASL_ENABLED_MECHANISMS]
    _require(
        properties[SASL_MECHANISM_INTER_BROKER_PROTOCOL] in mechanisms,
        f"{SASL_MECHANISM_INTER_BROKER_PROTOCOL.name} must be included in {SASL_ENABLED_MECHANISMS.name} "
        "when SASL is used for inter-broker communication",
    )


def _check_connections(properties: BrokerProperties) -> None:
    queued = properties[QUEUED_MAX_REQUEST_BYTES]
    _require(
        queued <= 0 or queued >= properties[SOCKET_REQUEST_MAX_BYTES],
        f"{QUEUED_MAX_REQUEST_BYTES.name} must be larger or equal to {SOCKET_REQUEST_MAX_BYTES.name}",
    )
    overrides = max_connections_per_ip_overrides(properties[MAX_CONNECTIONS_PER_IP_OVERRIDES])
    _require(
        properties[MAX_CONNECTIONS_PER_IP] != 0 or bool(overrides),
        f"{MAX_CONNECTIONS_PER_IP.name} can be set to zero only if {MAX_CONNECTIONS_PER_IP_OVERRIDES.name} property is set.",
    )
    invalid = [host for host in overrides if not _HOST.fullmatch(host)]
    if invalid:
        raise ConfigError(f"{MAX_CONNECTIONS_PER_IP_OVERRIDES.name} contains invalid addresses : {','.join(invalid)}")
    delay, idle = properties[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS], properties[CONNECTIONS_MAX_IDLE_MS]
    _require(
        idle < 0 or delay < idle,
        f"{CONNECTION_FAILED_AUTHENTICATION_DELAY_MS.name}={delay} should always be less than {CONNECTIONS_MAX_IDLE_MS.name}={idle} "
        "to prevent failed authentication responses from timing out",
    )


_BETWEEN: tuple[tuple[Key[int], Key[int], Key[int]], ...] = (
    (GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS, GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS),
    (GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, GROUP_CONSUMER_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
    (GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
    (GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, GROUP_SHARE_SESSION_TIMEOUT_MS, GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    (GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS, GROUP_SHARE_ASSIGNMENT_INTERVAL_MS, GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS),
    (GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT, GROUP_SHARE_DELIVERY_COUNT_LIMIT, GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT),
    (
        GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
    (GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS, GROUP_SHARE_RECORD_LOCK_DURATION_MS, GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS),
)
"""Triples of keys; the second value must be between the first and the third."""


def of_no_listener(names: Iterable[str], listeners: BrokerListeners) -> dict[str, str]:
    """The names with a listener's prefix that count for no listener, sorted, and a line about each. Apache Kafka says nothing."""
    prefixes = sorted(f"{LISTENER_PREFIX}{each.listener_name.lower()}." for each in listeners.listeners)
    found = {}
    for name in sorted(names):
        if not name.startswith(LISTENER_PREFIX) or key_of(name) is None:
            continue
        bases = [name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)]
        if not bases:
            found[name] = f"{name} has no effect: the prefixes of the listeners are {', '.join(prefixes)}"
        elif not any(map(_may_be_of_listener, bases)):
            found[name] = f"{name} has no effect: no listener has a key {bases[0]} of its own"
    return found


def _may_be_of_listener(base: str) -> bool:
    """Whether a listener may have this key, perhaps with the prefix of a mechanism, for itself."""
    if base in BROKER_KEYS:
        return base.startswith(_FAMILIES_OF_LISTENERS) or BROKER_KEYS[base] in _KEYS_OF_LISTENERS
    return base in {f"{mechanism.lower()}.{key.name}" for mechanism in MECHANISMS for key in LISTENER_MECHANISM_KEYS}
