"""Checks dynamic broker configuration: which keys may change at run time, at which level, and by how much at once.

Two levels are stored under /config/brokers: one for each broker, and the default of the cluster. Pure functions;
`BrokerConfig` holds the state.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS, broker_synonyms, key_of, listener_base_name
from ottla.config.broker_properties import BrokerProperties
from ottla.config.errors import ConfigError, ConfigValueError, DynamicConfigError
from ottla.config.keys.cleaner import LOG_CLEANER_THREADS
from ottla.config.keys.general import BACKGROUND_THREADS
from ottla.config.keys.log import LOG_CLEANUP_POLICY, LOG_RETENTION_BYTES, LOG_RETENTION_MS, NUM_RECOVERY_THREADS_PER_DATA_DIR
from ottla.config.keys.network import MAX_CONNECTION_CREATION_RATE, MAX_CONNECTIONS, NUM_IO_THREADS, NUM_NETWORK_THREADS
from ottla.config.keys.replication import NUM_REPLICA_FETCHERS
from ottla.config.keys.tiered import LOG_LOCAL_RETENTION_BYTES, LOG_LOCAL_RETENTION_MS
from ottla.config.listeners import BrokerListeners
from ottla.config.schema.key import DynamicScope, Key

log = logging.getLogger(__name__)

_POOLS = (NUM_IO_THREADS, NUM_REPLICA_FETCHERS, NUM_RECOVERY_THREADS_PER_DATA_DIR, BACKGROUND_THREADS)
_LISTENER_LIMITS = (MAX_CONNECTIONS, MAX_CONNECTION_CREATION_RATE)
_CLUSTER_LEVEL_OF_LISTENERS = frozenset({MAX_CONNECTIONS.name, MAX_CONNECTION_CREATION_RATE.name, NUM_NETWORK_THREADS.name})
_LOG_KEYS = frozenset(name for name, key in BROKER_KEYS.items() if key.topic is not None)
_LISTENER_KEYS = _CLUSTER_LEVEL_OF_LISTENERS | {
    name for name, key in BROKER_KEYS.items() if key.dynamic is DynamicScope.PER_BROKER and not key.listener_only
}
_CHANGEABLE_OF_LISTENERS = _CLUSTER_LEVEL_OF_LISTENERS | {name for name, key in BROKER_KEYS.items() if key.listener_only}

KEEPS_RECORDS: Final[Mapping[str, str]] = {LOG_CLEANUP_POLICY.name: "delete", LOG_RETENTION_MS.name: "-1", LOG_RETENTION_BYTES.name: "-1"}
"""In place of stored values that cannot be used. With the defaults, records that the broker is to keep would be deleted."""


def check_dynamic(overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises ConfigError unless `overrides` may be stored as dynamic configuration of a broker, or of the cluster.

    Unknown names are allowed, because a plugin may define them.
    """
    _refuse(_read_only(overrides), "Cannot update these configs dynamically")
    why = "These security configs can be dynamically updated only per-listener using the listener prefix"
    _refuse(_listener_only(overrides), why, scala_set="HashSet")
    for name, text in overrides.items():
        _check_value(name, text)
    if not per_broker:
        _refuse(_per_broker(overrides), "Cannot update these configs at default cluster level, broker id must be specified")


def without_invalid(overrides: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """`overrides` without the entries that `check_dynamic` refuses; one log line for each reason."""
    level = "broker" if per_broker else "default cluster"
    kept = dict(overrides)
    bad_values = [name for name, text in overrides.items() if not _has_good_value(name, text)]
    _ignore(kept, bad_values, f"Dynamic {level} config contains invalid values, these configs will be ignored")
    _ignore(kept, _read_only(kept), f"Dynamic {level} config contains keys that cannot be dynamic, these configs will be ignored")
    _ignore(
        kept, _listener_only(kept), "Security configs can be dynamically updated only using listener prefix, base configs will be ignored"
    )
    if not per_broker:
        _ignore(kept, _per_broker(kept), "Per-broker configs defined at default cluster level will be ignored")
    return kept


def keeping_records(stored: Mapping[str, str], usable: Mapping[str, str]) -> dict[str, str]:
    """The values in force of a `stored` level, of which only `usable` can be applied. All records are kept if the rest says which."""
    lost = sorted(name for name in KEEPS_RECORDS if name in stored and name not in usable)
    if not lost:
        return dict(usable)
    log.error("all records are kept until the dynamic configuration of %s can be applied", ", ".join(lost))
    return {**usable, **KEEPS_RECORDS}


def overridden(static: Mapping[str, str], cluster: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
    """The properties with both dynamic levels applied over the static ones.

    An override also removes its synonyms on lower levels: log.roll.ms of the cluster overrides log.roll.hours of the
    file.
    """
    properties = dict(static)
    for level in (cluster, broker):
        for name, text in level.items():
            for synonym in broker_synonyms(name, with_listener=False):
                properties.pop(synonym, None)
            properties[name] = text
    return properties


def check_change(
    current: BrokerProperties, listeners: BrokerListeners, proposed: BrokerProperties, proposed_listeners: BrokerListeners
) -> None:
    """Raises DynamicConfigError unless a running broker can change from `current` to `proposed`."""
    for key in _POOLS:
        _check_threads(key, current[key], proposed[key])
    _check_cleaner_threads(current[LOG_CLEANER_THREADS], proposed[LOG_CLEANER_THREADS])
    # As in Apache Kafka, keys are checked only if a key of their subject changed: the file may contradict itself
    # elsewhere.
    changed = {key.name for key in BROKER_KEYS.values() if current.given[key] != proposed.given[key]}
    if changed & _LOG_KEYS:
        _check_local(LOG_LOCAL_RETENTION_MS, LOG_RETENTION_MS, proposed)
        _check_local(LOG_LOCAL_RETENTION_BYTES, LOG_RETENTION_BYTES, proposed)
    staying = {each.listener_name for each in listeners.listeners} & {each.listener_name for each in proposed_listeners.listeners}
    for name in sorted(staying):
        _check_listener_limits(name, current, proposed)
        if changed & _LISTENER_KEYS:
            if _fixed_of_listener(name, current) != _fixed_of_listener(name, proposed):
                raise DynamicConfigError(
                    f"Configs cannot be updated dynamically for existing listener ListenerName({name}), "
                    "restart broker or create a new listener for update"
                )
            if listeners.security_protocols[name] is not proposed_listeners.security_protocols[name]:
                raise DynamicConfigError(f"Security protocol cannot be updated for existing listener ListenerName({name})")


def _check_listener_limits(name: str, current: BrokerProperties, proposed: BrokerProperties) -> None:
    before, after = current.for_listener(name), proposed.for_listener(name)
    _check_threads(NUM_NETWORK_THREADS, before[NUM_NETWORK_THREADS], after[NUM_NETWORK_THREADS])
    for key in _LISTENER_LIMITS:
        if after[key] != before[key] and after[key] <= 0:
            raise DynamicConfigError(f"Invalid {key.name} {after[key]}")


def _fixed_of_listener(name: str, properties: BrokerProperties) -> dict[str, str]:
    prefix = f"listener.name.{name.lower()}."
    return {
        each: text
        for each, text in properties.properties.items()
        if each.startswith(prefix) and each.removeprefix(prefix) not in _CHANGEABLE_OF_LISTENERS
    }


def _check_threads(key: Key[int], old: int, new: int) -> None:
    if new == old:
        return
    failed = f"Dynamic thread count update validation failed for {key.name}={new}"
    if new <= 0:
        raise DynamicConfigError(f"{failed}, value should be at least 1")
    if new < old // 2:
        raise DynamicConfigError(f"{failed}, value should be at least half the current value {old}")
    if new > old * 2:
        raise DynamicConfigError(f"{failed}, value should not be greater than double the current value {old}")


def _check_cleaner_threads(old: int, new: int) -> None:
    if new < old // 2:
        raise DynamicConfigError(f"Log cleaner threads cannot be reduced to less than half the current value {old}")
    if new > old * 2:
        raise DynamicConfigError(f"Log cleaner threads cannot be increased to more than double the current value {old}")


def _check_local(local: Key[int], total: Key[int], proposed: BrokerProperties) -> None:
    kept, whole = proposed[local], proposed[total]
    if whole < 0 or kept == -2:
        return
    if kept == -1:
        raise DynamicConfigError(str(ConfigValueError(local.name, kept, f"Value must not be -1 as {total.name} value is set as {whole}.")))
    if kept > whole:
        raise DynamicConfigError(
            str(ConfigValueError(local.name, kept, f"Value must not be more than {total.name} property value: {whole}"))
        )


def _read_only(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in BROKER_KEYS and BROKER_KEYS[name].dynamic is DynamicScope.READ_ONLY]


def _listener_only(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in BROKER_KEYS and BROKER_KEYS[name].listener_only]


def _per_broker(names: Iterable[str]) -> list[str]:
    return [name for name in names if _is_per_broker(name)]


def _is_per_broker(name: str) -> bool:
    base = listener_base_name(name)
    if base is not None:
        return base not in _CLUSTER_LEVEL_OF_LISTENERS
    return name in BROKER_KEYS and BROKER_KEYS[name].dynamic is DynamicScope.PER_BROKER


def _check_value(name: str, text: str) -> None:
    base = listener_base_name(name) or name
    key = DYNAMIC_ONLY_KEYS.get(base) or BROKER_KEYS.get(base)
    if key is not None:
        key.parse(text)


def _has_good_value(name: str, text: str) -> bool:
    try:
        _check_value(name, text)
    except ConfigError:
        return False
    return True


def is_password(name: str) -> bool:
    """Whether the value of `name` is a secret, which is stored encrypted and only for one broker."""
    key = key_of(name)
    return key is not None and key.sensitive


def _refuse(names: list[str], why: str, *, scala_set: str = "Set") -> None:
    if names:
        raise ConfigError(f"{why}: {scala_set}({', '.join(names)})")


def _ignore(kept: dict[str, str], names: list[str], why: str) -> None:
    for name in names:
        kept.pop(name, None)
    if names:
        log.error("%s: %s", why, ", ".join(names))
