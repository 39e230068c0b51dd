"""The configuration of a broker: every broker key, and the value each has in force.

A value comes, first found first taken, from the dynamic configuration of this broker, the dynamic default of the cluster, the static
properties the broker was started with, and the default of the declaration. The server builds one `BrokerConfig` from what `config.loader`
read and hands it to all floors; `config.dynamic` changes it when the metadata store says that /config/brokers changed. Reading a value
(`config[KEY]`) is one dict lookup.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from config import (
    broker_cleaner,
    broker_general,
    broker_groups,
    broker_groups_next,
    broker_kraft,
    broker_log,
    broker_metrics,
    broker_network,
    broker_quotas,
    broker_replication,
    broker_security,
    broker_tiered,
    broker_tls,
    broker_transactions,
    broker_zookeeper,
)
from config.broker_general import BROKER_ID
from config.broker_kraft import NODE_ID
from config.broker_zookeeper import ZOOKEEPER_CONNECT
from config.describe import ConfigEntry, ConfigSource, ConfigSynonym
from config.key import Key, Reading
from config.types import ConfigKind

T = TypeVar("T")

SUBJECTS = (
    broker_general,
    broker_network,
    broker_log,
    broker_cleaner,
    broker_replication,
    broker_groups,
    broker_groups_next,
    broker_transactions,
    broker_security,
    broker_tls,
    broker_zookeeper,
    broker_tiered,
    broker_metrics,
    broker_kraft,
)
"""The modules that declare broker keys, in the order of the reference page."""

BROKER_KEYS: Mapping[str, Key[Any]] = MappingProxyType(
    {key.name: key for module in SUBJECTS for key in vars(module).values() if isinstance(key, Key)}
)
DYNAMIC_ONLY_KEYS: Mapping[str, Key[Any]] = MappingProxyType(
    {key.name: key for key in vars(broker_quotas).values() if isinstance(key, Key)}
)

_LISTENER_PREFIX = "listener.name."


class ListenerConfig:
    """The values in force for one listener: `listener.name.NAME.KEY` where it is set, otherwise KEY."""

    def __init__(self, base: Reading, overrides: Mapping[Key[Any], Any]) -> None:
        self._base = base
        self._overrides = overrides

    def __getitem__(self, key: Key[T]) -> T:
        """The value in force for this listener."""
        return cast(T, self._overrides[key]) if key in self._overrides else self._base[key]


class BrokerProperties:
    """One complete set of properties with every value parsed; what cross-key checks look at. Immutable."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigValueError for the first bad value, in the order of the declarations."""
        self.properties = MappingProxyType(dict(properties))
        self.standalone = ZOOKEEPER_CONNECT.name not in properties
        self.given: dict[Key[Any], Any] = {}
        for name, key in BROKER_KEYS.items():
            text = properties.get(name)
            self.given[key] = key.default_for(self.standalone) if text is None else key.parse(text)
        self.values = dict(self.given)
        for key, value in self.given.items():
            if value is None and key.otherwise is not None:
                self.values[key] = key.otherwise(self)

    def __getitem__(self, key: Key[T]) -> T:
        """The value in force."""
        return cast(T, self.values[key])

    def has(self, key: Key[Any]) -> bool:
        """Whether the properties name the key at all."""
        return key.name in self.properties

    def for_listener(self, listener_name: str) -> ListenerConfig:
        """The values of one listener. Raises ConfigValueError when an override of that listener is bad."""
        prefix = f"{_LISTENER_PREFIX}{listener_name.lower()}."
        overrides: dict[Key[Any], Any] = {}
        for name, text in self.properties.items():
            key = BROKER_KEYS.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
            if key is not None:
                overrides[key] = key.type.parse(name, text)
        return ListenerConfig(self, overrides)


class BrokerConfig:
    """The configuration in force. Mutable through `update_dynamic` only."""

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """Takes the static properties as text. Raises ConfigError when one of them is bad; cross-key rules are `config.validation`'s."""
        self._static = with_broker_id(static or {})
        self._dynamic_broker: Mapping[str, str] = {}
        self._dynamic_default: Mapping[str, str] = {}
        self._callbacks: list[tuple[frozenset[str] | None, Callable[[frozenset[str]], None]]] = []
        self._current = BrokerProperties(self._static)
        self._values = self._current.values

    def __getitem__(self, key: Key[T]) -> T:
        """The value in force."""
        return cast(T, self._values[key])

    @property
    def current(self) -> BrokerProperties:
        """The properties in force, as one immutable set."""
        return self._current

    @property
    def standalone(self) -> bool:
        """Whether the embedded metadata store is used because zookeeper.connect is not set."""
        return self._current.standalone

    @property
    def static(self) -> Mapping[str, str]:
        """The properties the broker was started with."""
        return self._static

    def for_listener(self, listener_name: str) -> ListenerConfig:
        """The values in force for one listener."""
        return self._current.for_listener(listener_name)

    def on_change(self, callback: Callable[[frozenset[str]], None], keys: Iterable[Key[Any]] | None = None) -> None:
        """Calls `callback` with the changed names after an update that changed one of `keys` (or anything, without `keys`)."""
        self._callbacks.append((None if keys is None else frozenset(key.name for key in keys), callback))

    def with_dynamic(self, broker: Mapping[str, str], cluster: Mapping[str, str]) -> BrokerProperties:
        """The properties that would be in force with these dynamic configurations. Raises ConfigValueError."""
        properties = dict(self._static)
        for overrides in (cluster, broker):
            for name, text in overrides.items():
                for synonym in broker_synonyms(name, with_listener=False):
                    properties.pop(synonym, None)
                properties[name] = text
        return BrokerProperties(properties)

    def replace_dynamic(self, broker: Mapping[str, str], cluster: Mapping[str, str], properties: BrokerProperties) -> frozenset[str]:
        """Puts validated dynamic configurations in force, tells the callbacks, and returns the names whose text changed."""
        before, after = self._current.properties, properties.properties
        self._dynamic_broker, self._dynamic_default = dict(broker), dict(cluster)
        self._current, self._values = properties, properties.values
        changed = frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed:
            for wanted, callback in self._callbacks:
                if wanted is None or wanted & changed:
                    callback(changed)
        return changed

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
        """Every place that sets `name` or a synonym of it, in the order of precedence; a listener's base key does not come first."""
        names = broker_synonyms(name, with_listener=True)
        key = key_of(name)
        hidden = key is None or key.sensitive
        found: list[ConfigSynonym] = []
        for source, texts in (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self._dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self._static),
        ):
            found += [ConfigSynonym(each, None if hidden else texts[each], source) for each in names if each in texts]
        for each in names:
            declared = BROKER_KEYS.get(each)
            default = None if declared is None else declared.render(declared.default_for(self.standalone))
            if default is not None:
                found.append(ConfigSynonym(each, None if hidden else default, ConfigSource.DEFAULT_CONFIG))
        while found and found[0].name != name:
            del found[0]
        return found

    def _entry(self, name: str, value: str | None, only: ConfigSource | None = None) -> ConfigEntry:
        key = key_of(name)
        # Nobody knows whether an unknown key is a secret of some plugin, so it is treated as one.
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
            documentation=BROKER_KEYS[name].doc if name in BROKER_KEYS else None,
        )


def listener_base_name(name: str) -> str | None:
    """KEY of `listener.name.NAME.KEY`; None when `name` is not of that form."""
    if not name.startswith(_LISTENER_PREFIX):
        return None
    listener, dot, base = name.removeprefix(_LISTENER_PREFIX).partition(".")
    return base if dot and listener is not None else None


def broker_synonyms(name: str, *, with_listener: bool) -> list[str]:
    """The names that set the same thing as `name`, strongest first. `with_listener` adds the base key of a listener's key."""
    key = BROKER_KEYS.get(name)
    if key is not None:
        return [name, *(synonym.name for synonym in key.synonyms)]
    base = listener_base_name(name) if with_listener else None
    if base is None:
        return [name]
    # SASL keys carry the mechanism between the listener's prefix and their own name.
    mechanism_key = next((key.name for key in broker_security.LISTENER_MECHANISM_KEYS if base.endswith(key.name)), None)
    return [name, mechanism_key or base]


def key_of(name: str) -> Key[Any] | None:
    """The declaration that gives `name` its type, also for a listener's key; None for a name nobody declared."""
    for each in broker_synonyms(name, with_listener=True):
        key = BROKER_KEYS.get(each) or DYNAMIC_ONLY_KEYS.get(each)
        if key is not None:
            return key
    return None


def with_broker_id(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with broker.id and node.id filled in from each other, as Kafka does."""
    filled = dict(properties)
    if BROKER_ID.name in filled:
        filled.setdefault(NODE_ID.name, filled[BROKER_ID.name])
    elif NODE_ID.name in filled:
        filled[BROKER_ID.name] = filled[NODE_ID.name]
    return filled
