"""Replaces variables in property values: `${env:NAME}`, `${file:PATH:KEY}`, `${directory:PATH:FILE}` (KIP-421, KIP-887).

`config.providers` names the providers, `config.providers.NAME.class` the class of each. Apache Kafka's three classes are built in. As in
Apache Kafka a variable that no provider knows stays as it is, and a resolved value is not resolved again. A provider reads files and the
environment of its process, so only the properties of that process make one; a dynamic configuration may only name it.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath
from typing import Final

from ottla.config.errors import ConfigError, ConfigValueError
from ottla.config.properties_format import parse_properties
from ottla.config.regular_file import read_regular_file

logger = logging.getLogger(__name__)

PROVIDERS: Final = "config.providers"
ALLOWED_PATHS: Final = "allowed.paths"
ALLOWLIST_PATTERN: Final = "allowlist.pattern"
MAX_FILE_BYTES: Final = 1024 * 1024
"""Largest file that a variable names, bytes; the largest secret of Kubernetes has as many."""
MAX_VARIABLES: Final = 1_000
"""Most different variables of a configuration. The event loop resolves those of a dynamic one."""
MAX_RESOLVED: Final = 4 * 1024 * 1024
"""Most bytes of files that are read for a configuration, and characters that take the place of its variables, together."""
_VARIABLE: Final = re.compile(r"\$\{([^}]*+)\}")


def is_about_providers(name: str) -> bool:
    """Whether the property configures providers."""
    return name == PROVIDERS or name.startswith(f"{PROVIDERS}.")


def resolved(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The properties with the values of the variables that their own providers know. Raises the errors of `Providers`."""
    return Providers(properties, environment).resolved(properties)


class Providers:
    """The providers that the properties of a process name."""

    def __init__(self, properties: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Raises ConfigError for a provider that cannot be made."""
        self._own = {name: text for name, text in properties.items() if is_about_providers(name)}
        self._providers = _providers(properties, environment)

    def resolved(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties with the values of their variables.

        Raises ConfigError for a variable that a provider refuses, for a file that cannot be read, and for more than the limits.
        """
        return _resolved(properties, self._providers)

    def resolved_by_named(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """As `resolved`, but only by those of the providers that `overrides` names again, with their class."""
        named = overrides.get(PROVIDERS, "").split(",")
        own = {name for name in named if self._is_own(f"{PROVIDERS}.{name}.class", overrides)}
        return _resolved(overrides, {name: made for name, made in self._providers.items() if name in own})

    def foreign(self, overrides: Mapping[str, str]) -> list[str]:
        """The names of the properties in `overrides` that describe a provider otherwise than the properties of the process."""
        return [name for name in overrides if is_about_providers(name) and name != PROVIDERS and not self._is_own(name, overrides)]

    def _is_own(self, name: str, overrides: Mapping[str, str]) -> bool:
        return name in self._own and self._own[name] == overrides.get(name)


def unresolved(properties: Mapping[str, str]) -> list[str]:
    """The names of the properties with variables, in their order; empty without providers."""
    if PROVIDERS not in properties:
        return []
    return [name for name, text in properties.items() if not is_about_providers(name) and any(map(_parts, _bodies(text)))]


def _resolved(properties: Mapping[str, str], providers: Mapping[str, _Provider]) -> dict[str, str]:
    if not providers:
        return dict(properties)
    resolution = _Resolution(providers)
    return {name: resolution.resolved(text) for name, text in properties.items()}


def _bodies(text: str) -> Collection[str]:
    """Finds the texts between braces."""
    return _VARIABLE.findall(text[: _end_of_variables(text)])


def _end_of_variables(text: str) -> int:
    """The end of the last variable. Without the rest each `${` has an end, so that the time grows only with the length of the text."""
    return text.rfind("}") + 1


def _parts(body: str) -> tuple[str, str, str] | None:
    """The provider, path and key of a variable; the path is empty if it has none. None if it is no variable.

    Reads the same as Apache Kafka's expression, which looks at a text of colons for a time that grows with the cube of its length.
    """
    provider, colon, rest = body.partition(":")
    if not colon:
        return None
    path, colon, key = rest.partition(":")
    return (provider, path, key) if colon else (provider, "", rest)


class _Files:
    """The files that were read for one configuration, each once. `room` is what may still be read, or take the place of variables."""

    def __init__(self) -> None:
        self.room = MAX_RESOLVED
        self._properties: dict[Path, dict[str, str]] = {}

    def take(self, size: int) -> None:
        """Count bytes. Raises ConfigError when there are too many."""
        self.room -= size
        if self.room < 0:
            raise ConfigError(f"The variables of a configuration have more than {MAX_RESOLVED} bytes of files and values")

    def read(self, path: Path) -> bytes:
        """The contents of a file. Raises OSError, ValueError, ConfigError."""
        data = read_regular_file(path, MAX_FILE_BYTES)
        self.take(len(data))
        return data

    def properties(self, path: Path) -> Mapping[str, str]:
        """The properties of a file in UTF-8. Raises OSError, ValueError, ConfigError."""
        found = self._properties.get(path)
        if found is None:
            found = self._properties[path] = parse_properties(self.read(path).decode())
        return found


class _Resolution:
    """Resolves one configuration, within the limits."""

    def __init__(self, providers: Mapping[str, _Provider]) -> None:
        self._providers = providers
        self._files = _Files()
        self._found: dict[str, str | None] = {}

    def resolved(self, text: str) -> str:
        """The text with the values of its variables. Raises ConfigError."""
        end = _end_of_variables(text)
        return _VARIABLE.sub(self._value_of, text[:end]) + text[end:]

    def _value_of(self, variable: re.Match[str]) -> str:
        body = variable[1]
        if body not in self._found:
            self._found[body] = self._look_up(body)
        found = self._found[body]
        if found is None:
            return variable[0]
        self._files.take(len(found))
        return found

    def _look_up(self, body: str) -> str | None:
        parts = _parts(body)
        if parts is None:
            return None
        name, path, key = parts
        provider = self._providers.get(name)
        if provider is None:
            return None
        if len(self._found) >= MAX_VARIABLES:
            raise ConfigError(f"A configuration has more than {MAX_VARIABLES} variables")
        return provider.value_of(path, key, self._files)


class _Provider(ABC):
    """Knows the values of variables. `prefix` is that of its parameters."""

    def __init__(self, parameters: Mapping[str, str], prefix: str, environment: Mapping[str, str]) -> None:
        self.parameters = parameters
        self.prefix = prefix
        self.environment = environment

    @abstractmethod
    def value_of(self, path: str, key: str, files: _Files) -> str | None:
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

    def value_of(self, path: str, key: str, files: _Files) -> str | None:
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

    def value_of(self, path: str, key: str, files: _Files) -> str | None:
        """See `_Provider`."""
        if not path:
            return None
        if self._allowed is not None and not any(PurePath(os.path.normpath(path)).is_relative_to(each) for each in self._allowed):
            logger.error("%s is not below %s%s, so variables with this path are not resolved", path, self.prefix, ALLOWED_PATHS)
            return None
        return self.read(Path(path), key, files)

    @abstractmethod
    def read(self, path: Path, key: str, files: _Files) -> str | None:
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

    def read(self, path: Path, key: str, files: _Files) -> str | None:
        """See `_FilesProvider`."""
        try:
            return files.properties(path).get(key)
        except (OSError, ValueError):  # ValueError for a path with a zero byte, and for bytes that are no text
            raise ConfigError(f"Could not read properties from file {path}") from None


class DirectoryConfigProvider(_FilesProvider):
    """The contents of the files in a directory, such as a mounted secret of Kubernetes."""

    def read(self, path: Path, key: str, files: _Files) -> str | None:
        """See `_FilesProvider`."""
        file = path / key
        try:
            if file.parent != path or not file.is_file():
                return None
            return files.read(file).decode(errors="replace")
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
