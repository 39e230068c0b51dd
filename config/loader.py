"""Loads the static properties of a broker from a properties file, the environment and the command line.

The command line overrides the environment, which overrides the file. Called by the CLI, which logs the result of
`remarks`, or prints the one line of a ConfigError.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.network import ADVERTISED_LISTENERS, LISTENERS

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

_NATURAL_LINE = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
_SEPARATORS = "=:"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE_ESCAPE = re.compile(r"[0-9a-fA-F]{4}")
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
    properties.update(from_environment(environment or {}))
    properties.update(parse_assignment(assignment) for assignment in assignments)
    return properties


def remarks(config: BrokerConfig) -> list[str]:
    """One line for each unknown property, and one line with all properties without effect."""
    lines = [f"Unknown configuration {name}: no key of a broker has this name; it is kept but has no effect" for name in config.unknown]
    if config.without_effect:
        lines.append(f"Without effect in this server: {', '.join(config.without_effect)}")
    return lines


def decode(file: bytes) -> str:
    """The text of a properties file: UTF-8 if it is valid, otherwise ISO-8859-1, which Java expects."""
    try:
        return file.decode("utf-8-sig")
    except UnicodeDecodeError:
        return file.decode("iso-8859-1")


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


def parse_properties(text: str) -> dict[str, str]:
    """The properties of a file in Java's format; a key that repeats has its last value. Raises ConfigError for a broken \\u escape."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        try:
            properties[_unescape(line[:key_end])] = _unescape(line[value_start:])
        except ValueError:
            # Without the value, which may be a password.
            raise ConfigError(f"Malformed \\uxxxx encoding in the property that begins in line {number}: {line[:key_end]}") from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blank lines, each with the number of its first natural
    line."""
    lines = _NATURAL_LINE.split(text)
    # At the end of the text a lone backslash is an empty property; elsewhere it is nothing.
    last = len(lines) - (not lines[-1])
    pending = ""
    first = 0
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_BLANK)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        pending += line
        # An odd number of trailing backslashes: the last one is not escaped and joins the next line.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = pending[:-1]
            if number < last:
                continue
        yield first, pending
        pending = ""
    if pending:
        yield first, pending


def _split(line: str) -> tuple[int, int]:
    """The end of the key and the start of the value."""
    end = 0
    while end < len(line) and line[end] not in _SEPARATORS + _BLANK:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _BLANK:
        start += 1
    if start < len(line) and line[start] in _SEPARATORS:
        start += 1
        while start < len(line) and line[start] in _BLANK:
            start += 1
    return end, start


def _unescape(text: str) -> str:
    r"""`text` without its backslashes. Raises ValueError for \u without four hexadecimal digits."""
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char == "u":
                digits = _UNICODE_ESCAPE.match(text, position)
                if digits is None:
                    raise ValueError(text)
                char = chr(int(digits[0], 16))
                position += 4
            else:
                char = _ESCAPES.get(char, char)
        elif char == "\\":
            continue
        out.append(char)
    # Two \u escapes may be the surrogates of one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
