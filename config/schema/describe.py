"""Defines the answer of DescribeConfigs for one key, with Kafka's numbers; handlers translate it to the protocol."""

from enum import IntEnum
from typing import NamedTuple

from ottla.config.schema.types import ConfigKind


class ConfigSource(IntEnum):
    """The source of an effective value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """One setting of the value, with the name of the key that sets it."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key as in a DescribeConfigs response. `value` is None for secrets and for keys without a value."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    kind: ConfigKind
    documentation: str | None


def logger_entry(name: str, level: str) -> ConfigEntry:
    """One logger of the BROKER_LOGGER resource; `level` is one of `LogLevel`."""
    return ConfigEntry(
        name=name,
        value=level,
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        read_only=False,
        sensitive=False,
        synonyms=(),
        kind=ConfigKind.UNKNOWN,
        documentation=None,
    )


class LogLevel(IntEnum):
    """The levels of a logger in the BROKER_LOGGER resource, with the numbers of Python's logging."""

    TRACE = 5
    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    FATAL = 50
