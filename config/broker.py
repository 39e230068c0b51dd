"""Holds the configuration of a broker: the effective value of every broker key.

A value comes from the first of these sources that has one: the dynamic configuration of this broker, the dynamic
default of the cluster, the static properties from startup, the default in the declaration. The server builds one
`BrokerConfig` from the result of `ottla.config.loader` and passes it to all floors. `update_dynamic` changes it when
/config/brokers changed in the metadata store. Reading a value (`config[KEY]`) is one dict lookup.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from ottla.config.broker_keys import BROKER_KEYS, broker_synonyms, key_of
from ottla.config.broker_properties import BrokerProperties, ListenerConfig, with_broker_id
from ottla.config.dynamic import check_change, check_dynamic, keeping_records, overridden, without_invalid
from ottla.config.errors import ConfigError
from ottla.config.keys.security import ALLOW_EVERYONE_IF_NO_ACL_FOUND, SUPER_USERS
from ottla.config.keys.tiered import REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX, REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX
from ottla.config.listeners import BrokerListeners
from ottla.config.providers import Providers, is_about_providers
from ottla.config.schema.describe import ConfigEntry, ConfigSource, ConfigSynonym
from ottla.config.schema.key import Key
from ottla.config.schema.types import ConfigKind
from ottla.config.validation import of_no_listener, validate

log = logging.getLogger(__name__)

T = TypeVar("T")

_OF_THE_AUTHORIZER = frozenset({SUPER_USERS.name, ALLOW_EVERYONE_IF_NO_ACL_FOUND.name})

_FOREIGN = "is not among the properties with which the broker started, and only those define providers"


class BrokerConfig:
    """The effective configuration. Mutable through `update_dynamic` only."""

    def __init__(self, static: Mapping[str, str] | None = None, environment: Mapping[str, str] = os.environ) -> None:
        """Takes the static properties as text; their variables are resolved, from the environment among others.

        Raises ConfigError for an invalid value, for values that contradict each other, and for providers that cannot be used.
        """
        self._providers = Providers(static or {}, environment)
        self._static = with_broker_id(self._providers.resolved(static or {}))
        self._dynamic_broker: dict[str, str] = {}
        self._dynamic_default: dict[str, str] = {}
        self._callbacks: list[tuple[frozenset[str] | None, Callable[[frozenset[str]], None]]] = []
        self._checks: list[Callable[[BrokerProperties], None]] = []
        self._updates: list[Callable[[], None]] = []
        self._current = BrokerProperties(self._static)
        self._values = self._current.values
        self._listeners = validate(self._current)

    def __getitem__(self, key: Key[T]) -> T:
        """The effective value."""
        return cast(T, self._values[key])

    def quota(self, key: Key[int]) -> int:
        """The value of a key of `ottla.config.keys.quotas`, which only the dynamic configuration of this broker can set."""
        text = self._dynamic_broker.get(key.name)
        return cast(int, key.default) if text is None else key.parse(text)

    @property
    def current(self) -> BrokerProperties:
        """The effective properties, as one immutable set."""
        return self._current

    @property
    def standalone(self) -> bool:
        """Whether the embedded metadata store is used because zookeeper.connect is not set."""
        return self._current.standalone

    @property
    def listeners(self) -> BrokerListeners:
        """The effective listeners."""
        return self._listeners

    @property
    def unknown(self) -> list[str]:
        """The static properties that no key declares, sorted; they are kept for DescribeConfigs. Those of tiered storage have a prefix."""
        remote = tuple(self[key] for key in (REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX, REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX))
        return sorted(
            name for name in self._static if key_of(name) is None and not is_about_providers(name) and not name.startswith(remote)
        )

    @property
    def without_effect(self) -> list[str]:
        """The static properties that are declared but have no effect in this server, sorted."""
        return sorted(name for name in self._static if (key := key_of(name)) is not None and not key.effective)

    @property
    def static(self) -> Mapping[str, str]:
        """The static properties from startup."""
        return self._static

    def for_listener(self, listener_name: str) -> ListenerConfig:
        """The effective values for one listener."""
        return self._current.for_listener(listener_name)

    def on_change(self, callback: Callable[[frozenset[str]], None], keys: Iterable[Key[Any]] | None = None) -> None:
        """Calls `callback` with the changed names after an update that changed one of `keys`, or any key without
        `keys`."""
        self._callbacks.append((None if keys is None else frozenset(key.name for key in keys), callback))

    def on_check(self, check: Callable[[BrokerProperties], None]) -> None:
        """Calls `check` with the proposed properties before a change of this broker is stored. It raises ConfigError to
        refuse the change."""
        self._checks.append(check)

    def on_update(self, callback: Callable[[], None]) -> None:
        """Calls `callback` after every update, also after one without a changed value: the file of a path may be new."""
        self._updates.append(callback)

    def validate_dynamic(self, overrides: Mapping[str, str], *, per_broker: bool) -> None:
        """Raises ConfigError unless `overrides` may become the whole dynamic configuration of this broker, or the
        cluster's default. As in Apache Kafka their variables have to be resolved by providers among `overrides`. These
        have to be among the static properties, too, because files and environment are the operator's."""
        if foreign := self._providers.foreign(overrides):
            raise ConfigError(f"{foreign[0]} {_FOREIGN}")
        check_dynamic(self._providers.resolved_by_named(overrides), per_broker=per_broker)
        levels = (self._dynamic_default, overrides) if per_broker else (overrides, self._dynamic_broker)
        proposed = self._with(*levels)
        check_change(self._current, self._listeners, proposed, validate(proposed))
        if per_broker:
            for check in self._checks:
                check(proposed)

    def update_dynamic(self, broker: Mapping[str, str], cluster: Mapping[str, str], *, at_start: bool = False) -> frozenset[str]:
        """Applies the stored dynamic configurations, calls the callbacks, and returns the names whose value changed.

        Stored entries may be invalid, because another broker wrote them: those that cannot be dynamic are logged and
        ignored. If the rest is not valid together with the static properties, that is logged. Then one level changes
        without the other if that is possible, first the cluster's, and otherwise nothing. All records are kept if a value
        about that cannot be applied, and none was in force. `at_start` skips the rules for changes of a running broker.
        """
        found = self._possible(broker, cluster, at_start=at_start)
        if found is None:
            return frozenset()
        self._dynamic_broker, self._dynamic_default, proposed, listeners = found
        before, after = self._current.properties, proposed.properties
        self._current, self._values, self._listeners = proposed, proposed.values, listeners
        changed = frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        for line in of_no_listener(changed & after.keys(), listeners).values():
            log.warning("dynamic configuration: %s", line)
        wanting = [callback for wanted, callback in self._callbacks if changed and (wanted is None or wanted & changed)]
        calls: list[Callable[[], None]] = [partial(callback, changed) for callback in wanting]
        for call in [*calls, *self._updates]:
            try:
                call()
            except Exception:  # a fault of this broker: the others would keep the former values for good
                log.exception("a change of %s is not in force everywhere; start the broker again", ", ".join(sorted(changed)))
        return changed

    def _possible(
        self, broker: Mapping[str, str], cluster: Mapping[str, str], *, at_start: bool
    ) -> tuple[dict[str, str], dict[str, str], BrokerProperties, BrokerListeners] | None:
        """Both stored levels as far as they can be applied, with what results from them; None if nothing changes.

        A fault of one level does not undo the other, which may say how long records are kept. At a start Apache Kafka also applies the
        cluster's level by itself, before that of the broker.
        """
        former = self._dynamic_broker, self._dynamic_default
        usable = self._usable(broker, former[0], per_broker=True), self._usable(cluster, former[1], per_broker=False)
        refused: list[tuple[dict[str, str], dict[str, str]]] = []
        for one, all_brokers in self._combinations(usable, (broker, cluster)):
            if refused and (one, all_brokers) in (*refused, former):
                continue
            names = sorted(one.keys() | all_brokers.keys())
            try:
                proposed = self._with(all_brokers, one)
                listeners = validate(proposed)
                if not at_start:
                    check_change(self._current, self._listeners, proposed, listeners)
            except ConfigError as reason:
                log.error("dynamic configuration %s is not applied: %s", names, reason)
                refused.append((one, all_brokers))
                continue
            if refused:
                log.warning("the dynamic configuration in force is %s; correct the other settings", names)
            return one, all_brokers, proposed, listeners
        return None

    def _combinations(
        self, usable: tuple[dict[str, str], dict[str, str]], stored: tuple[Mapping[str, str], Mapping[str, str]]
    ) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        """The levels of this broker and of the cluster, in the order in which they are tried: each usable one, or what was in force."""
        yield usable
        of_broker = keeping_records(stored[0], self._dynamic_broker)
        of_cluster = keeping_records(stored[1], self._dynamic_default)
        yield of_broker, usable[1]
        yield usable[0], of_cluster
        yield of_broker, of_cluster

    def _usable(self, overrides: Mapping[str, str], former: dict[str, str], *, per_broker: bool) -> dict[str, str]:
        """A stored level without the entries that cannot be dynamic; the former one if its variables cannot be resolved."""
        for foreign in sorted(self._providers.foreign(overrides)):
            log.error("dynamic configuration %s is ignored: it %s; delete it, or set it in the file", foreign, _FOREIGN)
        try:
            valid = without_invalid(self._providers.resolved_by_named(overrides), per_broker=per_broker)
        except ConfigError as reason:
            log.error("dynamic configuration %s is not applied: %s", sorted(overrides), reason)
            return keeping_records(overrides, former)
        return keeping_records(overrides, {name: overrides[name] for name in valid})

    def _with(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> BrokerProperties:
        """The effective properties with these dynamic levels. Raises ConfigError."""
        return BrokerProperties(self._providers.resolved(overridden(self._static, cluster, broker)))

    @property
    def dynamic_broker(self) -> Mapping[str, str]:
        """The dynamic configuration of this broker, as text."""
        return self._dynamic_broker

    @property
    def dynamic_default(self) -> Mapping[str, str]:
        """The dynamic default of the cluster, as text."""
        return self._dynamic_default

    def describe(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The entries of the BROKER resource with this broker's id; all of them, or those of `names` that exist."""
        found = {key.name: key.render(value) for key, value in self._current.given.items() if not key.internal}
        for name, text in self._current.properties.items():
            found.setdefault(name, text)
        wanted = None if names is None else set(names)
        return [self._entry(name, value) for name, value in sorted(found.items()) if wanted is None or name in wanted]

    def describe_default(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The entries of the BROKER resource with the empty name: the dynamic default of the cluster."""
        wanted = None if names is None else set(names)
        default = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return [
            self._entry(name, value, only=default)
            for name, value in sorted(self._dynamic_default.items())
            if wanted is None or name in wanted
        ]

    def synonyms_of(self, name: str) -> list[ConfigSynonym]:
        """Every setting of `name` or a synonym of it, in the order of precedence; a listener's base key does not come
        first."""
        names = broker_synonyms(name, with_listener=True)
        key = _described_key(name)
        hidden = key is None or key.sensitive
        found: list[ConfigSynonym] = []
        for source, texts in (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self._dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self._static),
        ):
            found += [ConfigSynonym(each, None if hidden else texts[each], source) for each in names if each in texts]
        for each in names:
            declared = None if each in _OF_THE_AUTHORIZER else BROKER_KEYS.get(each)
            default = None if declared is None else declared.render(declared.default_for(self.standalone))
            if default is not None:
                found.append(ConfigSynonym(each, None if hidden else default, ConfigSource.DEFAULT_CONFIG))
        while found and found[0].name != name:
            del found[0]
        return found

    def _entry(self, name: str, value: str | None, only: ConfigSource | None = None) -> ConfigEntry:
        key = _described_key(name)
        # An unknown key may hold a secret of a plugin, so it is treated as one.
        hidden = key is None or key.sensitive
        synonyms = tuple(synonym for synonym in self.synonyms_of(name) if only is None or synonym.source is only)
        return ConfigEntry(
            name=name,
            value=None if hidden else value,
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            read_only=name not in BROKER_KEYS or BROKER_KEYS[name].dynamic.value == "read-only",
            sensitive=hidden,
            synonyms=synonyms,
            kind=ConfigKind.UNKNOWN if key is None else key.type.kind,
            documentation=BROKER_KEYS[name].doc if key is not None and name in BROKER_KEYS else None,
        )


def _described_key(name: str) -> Key[Any] | None:
    """As `key_of`, but None for the keys of the authorizer: in Apache Kafka it is a plugin, whose keys the broker does not know."""
    return None if name in _OF_THE_AUTHORIZER else key_of(name)
