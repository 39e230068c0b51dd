"""Loads the static properties of a broker from a properties file, the environment and the command line.

The command line overrides the environment, which overrides the file. Called by the CLI, which logs the result of
`remarks`, or prints the one line of a ConfigError.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ottla.config.broker import BrokerConfig
from ottla.config.broker_keys import key_of, like
from ottla.config.errors import ConfigError
from ottla.config.keys.network import ADVERTISED_LISTENERS, LISTENERS
from ottla.config.properties_format import decode, parse_properties
from ottla.config.providers import is_about_providers, unresolved
from ottla.config.validation import of_no_listener

ENVIRONMENT_PREFIX = "KAFKA_"
NOT_CONFIGURATION = frozenset(
    {
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
"""Variables of Apache Kafka's container image that are not broker keys."""

_END_OF_KEY = re.compile(r"[=:]|(?<=\S)\s")
_HOST_OF_LISTENER = re.compile(r"://[^:]*:")


def load_properties(
    file: Path | None = None, environment: Mapping[str, str] | None = None, assignments: Sequence[str] = ()
) -> dict[str, str]:
    """The static properties of all three sources. Raises ConfigError for a file that cannot be read and for malformed
    text."""
    properties: dict[str, str] = {}
    if file is not None:
        try:
            properties = parse_properties(decode(file.read_bytes()))
        except OSError as reason:
            raise ConfigError(f"{file} cannot be read: {reason.strerror}") from None
        except ConfigError as reason:
            raise ConfigError(f"{file}: {reason}") from None
    properties.update(from_environment(environment or {}))
    properties.update(parse_assignment(assignment) for assignment in assignments)
    return properties


def remarks(config: BrokerConfig) -> list[str]:
    """One line for each unknown property and for each that counts for no listener, one with all properties without effect, and one
    with those that keep variables."""
    lines = [f"{unknown(name)}; it is kept but has no effect" for name in config.unknown]
    lines += of_no_listener(config.static, config.listeners).values()
    if config.without_effect:
        lines.append(f"Without effect in this server: {', '.join(config.without_effect)}")
    if names := unresolved(config.static):
        lines.append(f"Variables that no configuration provider knows are kept as text: {', '.join(names)}")
    return lines


def unknown(name: str) -> str:
    """Says that no key has this name, and which may be meant."""
    meant = like(name)
    return f"Unknown configuration {name}: no key of a broker has this name{f' (did you mean {meant}?)' if meant else ''}"


def check_known(names: Iterable[str]) -> None:
    """Refuse a misspelt name among settings that were all written for this broker. Raises ConfigError."""
    for name in names:
        if key_of(name) is None and not is_about_providers(name):
            raise ConfigError(unknown(name))


def parse_assignment(text: str) -> tuple[str, str]:
    """The key and value of `key=value`. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        key = _END_OF_KEY.split(text, maxsplit=1)[0]  # the rest may be a password
        raise ConfigError(f"'{text if key == text else f'{key}...'}' is not of the form key=value")
    return name.strip(), value


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties in the variables KAFKA_*, read as Apache Kafka's container image reads them.

    `_` means a dot, `__` an underscore, `___` a hyphen. The image writes each variable into a properties file, so
    backslashes in a value are escapes as in a file. If only advertised listeners are set, the broker listens on every
    interface. Raises ConfigError.
    """
    properties: dict[str, str] = {}
    for variable, value in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in NOT_CONFIGURATION:
            try:
                properties.update(parse_properties(f"{property_name(variable)}={value}"))
            except ConfigError as reason:
                raise ConfigError(f"{variable}: {reason}") from None
    advertised = properties.get(ADVERTISED_LISTENERS.name)
    if advertised and not properties.get(LISTENERS.name):
        properties[LISTENERS.name] = _HOST_OF_LISTENER.sub("://0.0.0.0:", advertised)
    return properties


def property_name(variable: str) -> str:
    """The property that the variable `KAFKA_...` sets. Like the image, removes the prefix wherever it occurs."""
    name = variable.replace(ENVIRONMENT_PREFIX, "").lower()
    return name.replace("_", ".").replace("...", "-").replace("..", "_")
