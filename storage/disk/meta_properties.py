"""Reads and writes `meta.properties` of a log directory, which identifies its broker and cluster.

The file is a Java properties file, version 0 (ZooKeeper mode): `broker.id`, `version`, `cluster.id`, and `directory.id`
if a migration assigned one. The broker writes it into directories without one, and refuses to start with another
broker's. Called by `log_directories`.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from ottla.config.errors import ConfigError
from ottla.config.properties_format import parse_properties
from ottla.config.schema.types import java_int
from ottla.protocol import uuid
from ottla.storage.disk.checkpoint import replace_file
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.start_errors import InconsistentBrokerId, InconsistentClusterId, InvalidMetaProperties

META_PROPERTIES = "meta.properties"
VERSION = 0
RESERVED_DIRECTORY_IDS = 100
"""The lowest ids, which have special meanings such as no directory or a lost one (KIP-858)."""
_ESCAPED = str.maketrans({char: f"\\{char}" for char in "\\:=#! "})


class MetaProperties(NamedTuple):
    """The content. Fields that version 0 may lack are None."""

    broker_id: int | None
    cluster_id: str | None
    directory_id: str | None = None


def read_meta_properties(log_dir: str, filesystem: FileSystem) -> MetaProperties | None:
    """The content; None when the directory has no such file. Raises InvalidMetaProperties, OSError."""
    path = f"{log_dir}/{META_PROPERTIES}"
    if not filesystem.exists(path):
        return None
    try:
        properties = parse_properties(filesystem.read_file(path).decode("latin-1"))
    except ConfigError as error:
        raise InvalidMetaProperties(path, str(error)) from None
    version = properties.get("version", str(VERSION))
    if _number(version) != VERSION:
        raise InvalidMetaProperties(path, f"version is {version!r}; a broker with ZooKeeper's metadata uses {VERSION} only")
    written_id = properties.get("broker.id")
    broker_id = None if written_id is None else _number(written_id)
    if written_id is not None and (broker_id is None or broker_id < 0):
        raise InvalidMetaProperties(
            path,
            f"broker.id is {written_id!r}, not a broker id; restore the file or, if the data is lost, empty the directory",
        )
    if broker_id is None and "cluster.id" not in properties:
        # No release of Kafka writes such a file. It is damaged, and replacing it could assign another broker's data to
        # this one.
        raise InvalidMetaProperties(
            path, "it has neither a broker id nor a cluster id; restore it, or delete it if the directory is this broker's"
        )
    directory_id = properties.get("directory.id")
    if directory_id is not None:
        _check_directory_id(path, directory_id)
    return MetaProperties(broker_id, properties.get("cluster.id"), directory_id)


def _number(text: str) -> int | None:
    """The number as Java reads it: an optional sign, but no whitespace."""
    try:
        return java_int(text)
    except ValueError:
        return None


def _check_directory_id(path: str, directory_id: str) -> None:
    try:
        number = int.from_bytes(uuid.from_text(directory_id), "big")
    except ValueError as error:
        raise InvalidMetaProperties(path, f"directory.id is not a valid directory id: {error}; restore the line, or delete it") from None
    if number < RESERVED_DIRECTORY_IDS:
        raise InvalidMetaProperties(
            path, f"directory.id is {directory_id}, a reserved id that no directory has; restore the line, or delete it"
        )


def check_meta_properties(log_dir: str, found: MetaProperties, cluster_id: str, broker_id: int) -> None:
    """Raises InconsistentClusterId and InconsistentBrokerId when the directory belongs to another cluster or broker."""
    path = f"{log_dir}/{META_PROPERTIES}"
    if found.cluster_id is not None and found.cluster_id != cluster_id:
        raise InconsistentClusterId(path, cluster_id, found.cluster_id)
    if found.broker_id is not None and found.broker_id != broker_id:
        raise InconsistentBrokerId(path, broker_id, found.broker_id)


def write_meta_properties(log_dir: str, properties: MetaProperties, filesystem: FileSystem, now_ms: int) -> None:
    """Replaces the file. May raise OSError; blocks."""
    replace_file(filesystem, f"{log_dir}/{META_PROPERTIES}", encode_meta_properties(properties, now_ms))


def encode_meta_properties(properties: MetaProperties, now_ms: int) -> bytes:
    """The file as Java writes it, with an empty comment and the time."""
    written = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    fields = {
        "broker.id": None if properties.broker_id is None else str(properties.broker_id),
        "directory.id": properties.directory_id,
        "version": str(VERSION),
        "cluster.id": properties.cluster_id,
    }
    lines = [f"{name}={value.translate(_ESCAPED)}\n" for name, value in fields.items() if value is not None]
    return f"#\n#{written}\n{''.join(lines)}".encode("latin-1")
