"""Holds one complete set of broker properties with every value parsed, for checks across keys before it takes effect."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from ottla.config.broker_keys import BROKER_KEYS, LISTENER_PREFIX
from ottla.config.keys.general import BROKER_ID
from ottla.config.keys.kraft import NODE_ID
from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT
from ottla.config.schema.key import Key, Reading

T = TypeVar("T")


class ListenerConfig:
    """The effective values for one listener: `listener.name.NAME.KEY` if it is set, otherwise KEY."""

    def __init__(self, base: Reading, overrides: Mapping[Key[Any], Any]) -> None:
        self._base = base
        self._overrides = overrides

    def __getitem__(self, key: Key[T]) -> T:
        """The effective value for this listener."""
        return cast(T, self._overrides[key]) if key in self._overrides else self._base[key]


class BrokerProperties:
    """The properties and their values. Immutable."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigValueError for the first invalid value, in the order of the declarations."""
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
        """The effective value."""
        return cast(T, self.values[key])

    def has(self, key: Key[Any]) -> bool:
        """Whether the properties contain the key."""
        return key.name in self.properties

    def for_listener(self, listener_name: str) -> ListenerConfig:
        """The values for one listener. Raises ConfigValueError when an override of that listener is invalid."""
        prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."
        overrides: dict[Key[Any], Any] = {}
        for name, text in self.properties.items():
            key = BROKER_KEYS.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
            if key is not None:
                overrides[key] = key.type.parse(name, text)
        return ListenerConfig(self, overrides)


def with_broker_id(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with broker.id and node.id each filled in from the other, as Kafka does."""
    filled = dict(properties)
    if BROKER_ID.name in filled:
        filled.setdefault(NODE_ID.name, filled[BROKER_ID.name])
    elif NODE_ID.name in filled:
        filled[BROKER_ID.name] = filled[NODE_ID.name]
    return filled
