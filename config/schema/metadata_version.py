"""Parses the versions of Apache Kafka in inter.broker.protocol.version and log.message.format.version.

A version may be short (`3.9`) or have its internal number (`3.9-IV0`); the short form means the last version of that
release.
"""

from ottla.config.errors import ConfigValueError
from ottla.config.schema.types import ConfigKind, ValueType

_LATEST_PRODUCTION = "3.9-IV0"
_VERSIONS = """
0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 0.11.0-IV0 0.11.0-IV1 0.11.0-IV2
1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1 2.5-IV0 2.6-IV0
2.7-IV0 2.7-IV1 2.7-IV2 2.8-IV0 2.8-IV1 3.0-IV0 3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV0 3.3-IV1 3.3-IV2 3.3-IV3 3.4-IV0 3.5-IV0
3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1
"""
METADATA_VERSIONS = tuple(_VERSIONS.split())


class MetadataVersion(ValueType[str]):
    """A version, kept as written because DescribeConfigs shows it so."""

    kind = ConfigKind.STRING

    def parse(self, name: str, text: str) -> str:
        """See ValueType."""
        version = text.strip()
        if full_version(version) is None:
            raise ConfigValueError(name, version, f"Version {version} is not a valid version")
        return version

    def bounds(self) -> str | None:
        """See ValueType."""
        return f"[{', '.join(METADATA_VERSIONS)}]"


def full_version(text: str) -> str | None:
    """The version that `text` names, or None. Numbers beyond those of a release are ignored: `3.9.1` is `3.9-IV0`."""
    segments = text.split(".")
    # Until 0.11 a release had three numbers before its internal one.
    counting = 3 if text.startswith("0.") else 2
    named = text if counting >= len(segments) else ".".join(segments[:counting])
    return named if named in METADATA_VERSIONS else _LAST_OF_RELEASE.get(named)


def is_at_least(text: str, other: str) -> bool:
    """Whether the version named `text` is `other` or a later one. Both must be valid."""
    return METADATA_VERSIONS.index(full_version(text) or text) >= METADATA_VERSIONS.index(full_version(other) or other)


def record_magic(text: str) -> int:
    """The message format of the release with the version named `text`: 2 from 0.11 on (KIP-98), 1 from 0.10 on (KIP-32), otherwise 0."""
    return sum(is_at_least(text, first) for first in _FIRST_WITH_FORMAT)


_FIRST_WITH_FORMAT = ("0.10.0-IV0", "0.11.0-IV0")
_LAST_OF_RELEASE = {version.split("-")[0]: version for version in METADATA_VERSIONS[: METADATA_VERSIONS.index(_LATEST_PRODUCTION) + 1]}
