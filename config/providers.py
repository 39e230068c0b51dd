"""Replaces variables in property values: `${env:NAME}`, `${file:PATH:KEY}`, `${directory:PATH:FILE}` (KIP-421, KIP-887).

`config.providers` names the providers, `config.providers.NAME.class` the class of each. Apache Kafka's three classes are built in. As in
Apache Kafka a variable that no provider knows stays as it is, and a resolved value is not resolved again.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final

from ottla.config.errors import ConfigError, ConfigValueError
from ottla.config.properties_format import parse_properties

logger = logging.getLogger(__name__)

PROVIDERS: Final = "config.providers"
ALLOWED_PATHS: Final = "allowed.paths"
ALLOWLIST_PATTERN: Final = "allowlist.pattern"
_VARIABLE: Final = re.compile(r"\$\{([^}:]*+):(?:([^}:]*+):)?([^}]*+)\}")
"""Matches the same as Apache Kafka's expression, which looks at a text of colons for a time that grows with the cube of its length."""


def is_about_providers(name: str) -> bool:
    """Whether the property configures providers."""
    return name == PROVIDERS or name.startswith(f"{PROVIDERS}.")


def resolved(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The properties with the values of the variables that their own providers know.

    Raises ConfigError for a provider that cannot be made, for a variable that it refuses, and for a file that cannot be read.
    """
    providers = _providers(properties, environment)
    if not providers:
        return dict(properties)

    def value_of(variable: re.Match[str]) -> str:
        name, path, key = variable.groups(default="")
        provider = providers.get(name)
        found = None if provider is None else provider.value_of(path, key)
        return variable[0] if found is None else found

    return {name: _VARIABLE.sub(value_of, text) for name, text in properties.items()}


def unresolved(properties: Mapping[str, str]) -> list[str]:
    """The names of the properties with variables, in their order; empty without providers."""
    if PROVIDERS not in properties:
        return []
    return [name for name, text in properties.items() if not is_about_providers(name) and _VARIABLE.search(text)]


class _Provider(ABC):
    """Knows the values of variables. `prefix` is that of its parameters."""

    def __init__(self, parameters: Mapping[str, str], prefix: str, environment: Mapping[str, str]) -> None:
        self.parameters = parameters
        self.prefix = prefix
        self.environment = environment

    @abstractmethod
    def value_of(self, path: str, key: str) -> str | None:
        """The value of `${provider:path:key}`; the path is empty if the variable has none. None if it is unknown. Raises ConfigError."""


class EnvVarConfigProvider(_Provider):
    """Variables of the environment whose names fit `allowlist.pattern`."""

    def __init__(self, parameters: Mapping[str, str], prefix: str, environment: Mapping[str, str]) -> None:
        super().__init__(parameters, prefix, environment)
        pattern = parameters.get(ALLOWLIST_PATTERN)
        try:
            self._allowed = None if pattern is None else re.compile(pattern)
        except re.error as reason:
            raise ConfigValueError(prefix + ALLOWLIST_PATTERN, pattern, str(reason)) from None

    def value_of(self, path: str, key: str) -> str | None:
        """See `_Provider`."""
        if path:
            raise ConfigError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return self.environment.get(key) if self._allowed is None or self._allowed.fullmatch(key) else None


class _FilesProvider(_Provider):
    """Files below `allowed.paths`, all files without it."""

    def __init__(self, parameters: Mapping[str, str], prefix: str, environment: Mapping[str, str]) -> None:
        super().__init__(parameters, prefix, environment)
        listed = parameters.get(ALLOWED_PATHS)
        self._allowed = [self._checked(each) for each in listed.split(",")] if listed else None

    def value_of(self, path: str, key: str) -> str | None:
        """See `_Provider`."""
        if not path:
            return None
        if self._allowed is not None and not any(PurePath(os.path.normpath(path)).is_relative_to(each) for each in self._allowed):
            logger.error("%s is not below %s%s, so variables with this path are not resolved", path, self.prefix, ALLOWED_PATHS)
            return None
        return self.read(Path(path), key)

    @abstractmethod
    def read(self, path: Path, key: str) -> str | None:
        """The value of a key at an allowed path; None without the key. Raises ConfigError."""

    @staticmethod
    def _checked(text: str) -> PurePath:
        path = os.path.normpath(text)
        if not os.path.isabs(path):
            raise ConfigError(f"Path {path} is not absolute")
        if not os.path.exists(path):
            raise ConfigError(f"Path {path} does not exist")
        return PurePath(path)


class FileConfigProvider(_FilesProvider):
    """Properties of a file in Java's format."""

    def read(self, path: Path, key: str) -> str | None:
        """See `_FilesProvider`."""
        try:
            text = path.read_bytes().decode()
        except (OSError, ValueError):  # ValueError for a path with a zero byte, and for bytes that are no text
            raise ConfigError(f"Could not read properties from file {path}") from None
        return parse_properties(text).get(key)


class DirectoryConfigProvider(_FilesProvider):
    """The contents of the files in a directory, such as a mounted secret of Kubernetes."""

    def read(self, path: Path, key: str) -> str | None:
        """See `_FilesProvider`."""
        file = path / key
        try:
            if file.parent != path or not file.is_file():
                return None
            return file.read_bytes().decode(errors="replace")
        except (OSError, ValueError):
            raise ConfigError(f"Could not read file {file} for property {key}") from None


_CLASSES: Final[dict[str, type[_Provider]]] = {
    f"org.apache.kafka.common.config.provider.{each.__name__}": each
    for each in (EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider)
}


def _providers(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, _Provider]:
    """The providers by name. One that is listed without a class is left out, as in Apache Kafka. Raises ConfigError."""
    providers: dict[str, _Provider] = {}
    for name in properties.get(PROVIDERS, "").split(","):
        class_key = f"{PROVIDERS}.{name}.class"
        class_name = properties.get(class_key)
        if class_name is None:
            continue
        if class_name not in _CLASSES:
            reason = "Could not load config provider class or one of its dependencies"
            raise ConfigValueError(class_key, class_name, reason)
        prefix = f"{PROVIDERS}.{name}.param."
        parameters = {key.removeprefix(prefix): text for key, text in properties.items() if key.startswith(prefix)}
        providers[name] = _CLASSES[class_name](parameters, prefix, environment)
    return providers
