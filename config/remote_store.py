"""Reads the keys of `rsm.config.*`: which remote store a broker uses, and how, under the names of Java's plugins for that.

LocalTieredStorage has `dir`. Aiven's plugin has `storage.backend.class` and the keys of that backend below `storage.`.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigValueError
from ottla.config.keys.tiered import REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME, REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX
from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.config.schema.types import Bool, Int, String, ValueType

S3: Final = "io.aiven.kafka.tieredstorage.storage.s3.S3Storage"
GCS: Final = "io.aiven.kafka.tieredstorage.storage.gcs.GcsStorage"
AZURE: Final = "io.aiven.kafka.tieredstorage.storage.azure.AzureBlobStorage"
BACKENDS: Final = (S3, GCS, AZURE)

_Kind = tuple[ValueType[Any], object]


def _check_url(name: str, value: str) -> None:
    try:
        url = urlsplit(value)
    except ValueError:
        url = urlsplit("")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigValueError(name, value, "Must be a URL such as https://s3.example.com")


_TEXT: Final = String()
_URL: Final = String(check=_check_url)
_FLAG: Final = Bool()
_OF_ALL: Final[dict[str, _Kind]] = {
    "key.prefix": (_TEXT, ""),
    "chunk.size": (Int(1, 1 << 30), 4 << 20),
    "compression.enabled": (_FLAG, False),
    "compression.heuristic.enabled": (_FLAG, False),
    "encryption.enabled": (_FLAG, False),
    "encryption.key.pair.id": (_TEXT, ""),
    "encryption.key.pairs": (_TEXT, ""),
    "custom.metadata.fields.include": (_TEXT, ""),
}
"""Types and defaults of the keys that every backend has."""
_OF_BACKEND: Final[dict[str, dict[str, _Kind]]] = {
    S3: {
        "s3.bucket.name": (_TEXT, None),
        "s3.region": (_TEXT, None),
        "s3.endpoint.url": (_URL, None),
        "s3.path.style.access.enabled": (_FLAG, None),
        "aws.access.key.id": (_TEXT, None),
        "aws.secret.access.key": (_TEXT, None),
        "aws.certificate.check.enabled": (_FLAG, True),
    },
    GCS: {
        "gcs.bucket.name": (_TEXT, None),
        "gcs.endpoint.url": (_URL, None),
        "gcs.credentials.path": (_TEXT, None),
        "gcs.credentials.json": (_TEXT, None),
        "gcs.credentials.default": (_FLAG, None),
    },
    AZURE: {
        "azure.container.name": (_TEXT, None),
        "azure.account.name": (_TEXT, None),
        "azure.account.key": (_TEXT, None),
        "azure.sas.token": (_TEXT, None),
        "azure.endpoint.url": (_URL, None),
    },
}
_NEEDED: Final = {S3: ("s3.bucket.name", "s3.region"), GCS: ("gcs.bucket.name",), AZURE: ("azure.container.name",)}
REMOTE_SIZE: Final = "REMOTE_SIZE"
OBJECT_PREFIX: Final = "OBJECT_PREFIX"
OBJECT_KEY: Final = "OBJECT_KEY"
_CUSTOM_FIELDS: Final = (REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY)


class EncryptionSettings(NamedTuple):
    """The RSA keys that protect the keys of copies. New copies are encrypted with that of `key_pair_id` if `is_enabled`."""

    is_enabled: bool
    key_pair_id: str
    pairs: Mapping[str, tuple[str, str]]
    """Id of a pair -> the files of its public and its private key, in PEM."""


class StoreSettings(NamedTuple):
    """The remote store of a broker. `backend` is None for the directory of LocalTieredStorage."""

    directory: str | None
    backend: str | None
    options: Mapping[str, object]
    """The keys of the backend, without `storage.`; only those that have a value."""
    key_prefix: str
    chunk_bytes: int
    is_compressed: bool
    uses_heuristic: bool
    """Whether segments whose first batch is compressed stay as they are."""
    custom_fields: frozenset[str]
    ignored: tuple[str, ...]
    """Given keys that configure what this broker does in another way, or that no release knows."""
    encryption: EncryptionSettings | None = None
    """None if nothing is encrypted, or was."""


def store_settings(config: BrokerConfig) -> StoreSettings:
    """Returns the settings of a broker with tiered storage. Raises ConfigError."""
    prefix = config[REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX]
    given = {name.removeprefix(prefix): text for name, text in config.static.items() if name.startswith(prefix)}
    if config[REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME] == LOCAL_TIERED_STORAGE:
        directory = given.get("dir")
        if not directory or not directory.startswith("/"):
            raise ConfigValueError(f"{prefix}dir", directory, "Must be the absolute path of a directory that all brokers share")
        ignored = tuple(sorted(given.keys() - {"dir"}))
        return StoreSettings(directory, None, {}, "", 4 << 20, False, False, frozenset(), ignored)
    backend = given.get("storage.backend.class")
    if backend not in BACKENDS:
        raise ConfigValueError(f"{prefix}storage.backend.class", backend, f"Must be one of {', '.join(BACKENDS)}")
    values = {name: _value(prefix, name, given, kind, default) for name, (kind, default) in _OF_ALL.items()}
    known = _OF_BACKEND[backend]
    options = {name: _value(f"{prefix}storage.", name, _of_storage(given), kind, default) for name, (kind, default) in known.items()}
    for name in _NEEDED[backend]:
        if not options[name]:
            raise ConfigValueError(f"{prefix}storage.{name}", None, "Must be set")
    _refuse_other_formats(prefix, given)
    fields = frozenset(field.strip() for field in str(values["custom.metadata.fields.include"]).split(",") if field.strip())
    if not fields <= set(_CUSTOM_FIELDS):
        raise ConfigValueError(f"{prefix}custom.metadata.fields.include", ",".join(sorted(fields)), f"Must be of {_CUSTOM_FIELDS}")
    encryption = _encryption(prefix, given, values)
    used = {"storage.backend.class", *_OF_ALL, *(f"storage.{name}" for name in known), *_key_files(encryption)}
    return StoreSettings(
        None,
        backend,
        {name: value for name, value in options.items() if value is not None},
        str(values["key.prefix"]),
        int(str(values["chunk.size"])),
        values["compression.enabled"] is True,
        values["compression.heuristic.enabled"] is True,
        fields,
        tuple(sorted(given.keys() - used)),
        encryption,
    )


def _of_storage(given: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("storage."): text for name, text in given.items() if name.startswith("storage.")}


def _value(prefix: str, name: str, given: Mapping[str, str], kind: ValueType[Any], default: object) -> object:
    return kind.parse(prefix + name, given[name]) if name in given else default


def _encryption(prefix: str, given: Mapping[str, str], values: Mapping[str, object]) -> EncryptionSettings | None:
    """The keys that encrypt and decrypt. Those of a plugin that encrypts no more still read what it wrote."""
    is_enabled, key_pair_id = values["encryption.enabled"] is True, str(values["encryption.key.pair.id"])
    names = [name.strip() for name in str(values["encryption.key.pairs"]).split(",") if name.strip()]
    if not is_enabled and not names:
        return None
    pairs = {}
    for name in names:
        files = [given.get(f"encryption.key.pairs.{name}.{kind}.key.file", "") for kind in ("public", "private")]
        for kind, file in zip(("public", "private"), files, strict=True):
            if not file:
                raise ConfigValueError(f"{prefix}encryption.key.pairs.{name}.{kind}.key.file", None, "Must be set")
        pairs[name] = files[0], files[1]
    if is_enabled and key_pair_id not in pairs:
        raise ConfigValueError(f"{prefix}encryption.key.pair.id", key_pair_id, "Must be one of encryption.key.pairs")
    return EncryptionSettings(is_enabled, key_pair_id, pairs)


def _key_files(encryption: EncryptionSettings | None) -> list[str]:
    names = encryption.pairs if encryption is not None else ()
    return [f"encryption.key.pairs.{name}.{kind}.key.file" for name in names for kind in ("public", "private")]


def _refuse_other_formats(prefix: str, given: Mapping[str, str]) -> None:
    segment_format = given.get("segment.format", "kafka")
    if segment_format != "kafka":
        raise ConfigValueError(f"{prefix}segment.format", segment_format, "This broker copies segments as they are: Must be kafka")
