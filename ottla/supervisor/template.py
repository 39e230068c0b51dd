"""Reads the properties that all brokers of a host share: one file, in whose values `{id}`, `{port}`, `{host}` and `{dir}` differ by broker.

The variables `KAFKA_*` of the environment override the keys of the file, as they do for `ottla serve`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.config.broker_keys import key_of
from ottla.config.errors import ConfigError
from ottla.config.loader import from_environment, load_properties

PLACEHOLDERS: Final = ("id", "port", "host", "dir")
_PLACEHOLDER: Final = re.compile(r"(?<!\\p)(?<!\\P)(?<!\$)\{([a-z]+)\}")
"""A name in braces. Quantifiers such as {1,3}, classes such as \\p{alpha} and variables of configuration providers are left alone."""
_ESCAPED: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


@dataclass(frozen=True)
class Template:
    """The properties of the file, before their placeholders are filled; without a file there are none."""

    file: Path | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """The properties of the variables `KAFKA_*`."""

    @staticmethod
    def load(file: Path | None, environment: Mapping[str, str]) -> Template:
        """Read the file. Raises ConfigError, which names the file."""
        try:
            values = {} if file is None else load_properties(file)
        except ConfigError as error:
            raise ConfigError(str(error) if str(file) in str(error) else f"{file}: {error}") from None
        given = from_environment(environment)
        return Template(file, {name: given.get(name, value) for name, value in values.items()}, given)

    def place_of(self, name: str) -> str:
        """The beginning of an error about this key: the file, if it has the key, otherwise nothing."""
        return f"{self.file}: " if name in self.values else ""


def fill(name: str, value: str, places: Mapping[str, str], place: str = "") -> str:
    """The value of a key with its placeholders filled. Raises ConfigError for one that is unknown; `place` begins its text."""
    key = key_of(name)
    for found in _PLACEHOLDER.findall(value):
        if found not in places and not (key is not None and key.sensitive):  # a password may have braces
            known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            raise ConfigError(f"{place}{shown(name, value)}: {{{found}}} is no placeholder; those are {known}")
    return _PLACEHOLDER.sub(lambda match: places.get(match[1], match[0]), value)


def shown(name: str, value: str) -> str:
    """`key=value` for an error; a password is hidden, and so is the value of a key that is unknown."""
    key = key_of(name)
    return f"{name}={'[hidden]' if key is None or key.sensitive else value}"


def properties_text(properties: Iterable[tuple[str, str]]) -> str:
    """The properties as a file in Java's format."""
    return "".join(f"{_escaped(name, ' =:#!')}={_escaped(value)}\n" for name, value in properties)


def _escaped(text: str, more: str = "") -> str:
    found = "".join(f"\\{char}" if char in more else _ESCAPED.get(char, char) for char in text)
    return f"\\{found}" if found.startswith(" ") else found
