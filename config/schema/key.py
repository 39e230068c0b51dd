"""Defines a configuration key: one declaration that drives parsing, bounds, synonyms, DescribeConfigs, dynamic updates
and the reference page.

The modules of `ottla.config.keys` and `ottla.config.topic` declare the keys. `BrokerConfig` and `TopicConfig` are read with them:
the type checker knows that `config[LOG_SEGMENT_BYTES]` is an int. A key compares by identity, so reading a value is a
single dict lookup.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, overload

from ottla.config.schema.types import ConfigKind, ValueType

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max

T = TypeVar("T")
S = TypeVar("S")


class DynamicScope(Enum):
    """The level at which a key may be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    """Kafka's rating of how likely an operator has to set the key."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


READ_ONLY = DynamicScope.READ_ONLY
PER_BROKER = DynamicScope.PER_BROKER
CLUSTER = DynamicScope.CLUSTER_WIDE
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW


class Reading(Protocol):
    """Has a value for every key."""

    def __getitem__(self, key: "Key[S]") -> S:
        """The effective value."""


class _NoStandaloneDefault(Enum):
    NONE = 0


@dataclass(frozen=True, slots=True, eq=False)
class Key(Generic[T]):
    """One key with all its properties."""

    name: str
    type: ValueType[Any]
    default: T | None
    """Kafka's default, which DescribeConfigs reports; None when Kafka has none."""
    importance: Importance
    dynamic: DynamicScope
    doc: str
    topic: str | None
    """The topic key for which this broker key is the default."""
    otherwise: Callable[[Reading], T] | None
    """The effective value, computed from other keys, when this key has neither a value nor a default."""
    synonyms: "tuple[Key[Any], ...]"
    """Other keys that set the same value in another unit; this key takes precedence, then they in this order."""
    standalone: T | _NoStandaloneDefault
    """The default of a broker without zookeeper.connect, if it has to differ."""
    effective: bool
    """Whether this server acts on the key. Other keys are accepted, checked and listed in one log line."""
    internal: bool
    """Internal keys have an effect but DescribeConfigs does not list them."""
    listener_only: bool
    """May be changed at run time only with a listener prefix (the key material of TLS)."""

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type.kind is ConfigKind.PASSWORD

    @property
    def has_standalone_default(self) -> bool:
        """Whether the default differs without zookeeper.connect."""
        return self.standalone is not _NoStandaloneDefault.NONE

    def default_for(self, standalone: bool) -> T | None:
        """The default of a broker with (`standalone` false) or without zookeeper.connect."""
        if not standalone or isinstance(self.standalone, _NoStandaloneDefault):
            return self.default
        return self.standalone

    def parse(self, text: str) -> T:
        """The value of `text`. Raises ConfigValueError."""
        value: T = self.type.parse(self.name, text)
        return value

    def render(self, value: T | None) -> str | None:
        """The text that DescribeConfigs shows for `value`; None stays None."""
        return None if value is None else self.type.render(value)


@overload
def key(
    name: str,
    type: ValueType[T],
    *,
    default: T,
    importance: Importance,
    doc: str,
    dynamic: DynamicScope = ...,
    topic: str | None = ...,
    synonyms: tuple[Key[Any], ...] = ...,
    standalone: T | _NoStandaloneDefault = ...,
    effective: bool = ...,
    internal: bool = ...,
    listener_only: bool = ...,
) -> Key[T]: ...


@overload
def key(
    name: str,
    type: ValueType[T],
    *,
    otherwise: Callable[[Reading], T],
    default: T | None = None,
    importance: Importance,
    doc: str,
    dynamic: DynamicScope = ...,
    topic: str | None = ...,
    synonyms: tuple[Key[Any], ...] = ...,
    standalone: T | _NoStandaloneDefault = ...,
    effective: bool = ...,
    internal: bool = ...,
    listener_only: bool = ...,
) -> Key[T]: ...


@overload
def key(
    name: str,
    type: ValueType[T],
    *,
    default: None = None,
    importance: Importance,
    doc: str,
    dynamic: DynamicScope = ...,
    topic: str | None = ...,
    synonyms: tuple[Key[Any], ...] = ...,
    standalone: T | _NoStandaloneDefault = ...,
    effective: bool = ...,
    internal: bool = ...,
    listener_only: bool = ...,
) -> Key[T | None]: ...


def key(
    name: str,
    type: ValueType[Any],
    *,
    default: Any = None,
    otherwise: Callable[[Reading], Any] | None = None,
    importance: Importance,
    doc: str,
    dynamic: DynamicScope = READ_ONLY,
    topic: str | None = None,
    synonyms: tuple[Key[Any], ...] = (),
    standalone: Any = _NoStandaloneDefault.NONE,
    effective: bool = False,
    internal: bool = False,
    listener_only: bool = False,
) -> Key[Any]:
    """Declares a key. Without `default` and `otherwise` its value may be None, which its type reflects."""
    return Key(name, type, default, importance, dynamic, doc, topic, otherwise, synonyms, standalone, effective, internal, listener_only)
