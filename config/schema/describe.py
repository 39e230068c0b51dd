"""What DescribeConfigs says of one key: the shape the handlers translate to the wire, numbered as Kafka numbers it."""

from enum import IntEnum
from typing import NamedTuple

from config.schema.types import ConfigKind


class ConfigSource(IntEnum):
    """Where the value in force comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7


class ConfigSynonym(NamedTuple):
    """One place that sets the value, under the name it has there."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key as DescribeConfigs answers it. `value` is None for secrets and for keys without a value."""

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
    """The levels a logger of the BROKER_LOGGER resource may have, with the numbers of Python's logging."""

    TRACE = 5
    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    FATAL = 50
