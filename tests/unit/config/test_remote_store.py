"""The keys of the remote store are those of Java's plugins, and faults among them are named."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from ottla.config.remote_store import AZURE, GCS, S3, StoreSettings, store_settings

S3_KEYS = {"storage.backend.class": S3, "storage.s3.bucket.name": "b", "storage.s3.region": "eu-west-1"}


def settings_of(keys: dict[str, str], name: str = AIVEN_REMOTE_STORAGE) -> StoreSettings:
    given = {f"rsm.config.{key}": value for key, value in keys.items()}
    return store_settings(BrokerConfig({"remote.log.storage.manager.class.name": name, **given}))


def test_local_tiered_storage_has_a_directory() -> None:
    settings = settings_of({"dir": "/shared", "delete.on.close": "true"}, LOCAL_TIERED_STORAGE)

    assert (settings.directory, settings.backend) == ("/shared", None)
    assert settings.ignored == ("delete.on.close",)


def test_the_plugin_has_a_bucket_and_its_own_defaults() -> None:
    settings = settings_of(S3_KEYS | {"fetch.chunk.cache.class": "x", "storage.aws.access.key.id": "k"})

    assert (settings.directory, settings.backend, settings.key_prefix, settings.is_compressed) == (None, S3, "", False)
    assert settings.chunk_bytes == 4 << 20
    assert settings.options == {
        "s3.bucket.name": "b", "s3.region": "eu-west-1", "aws.access.key.id": "k", "aws.certificate.check.enabled": True,
    }  # fmt: skip
    assert settings.ignored == ("fetch.chunk.cache.class",)


def test_the_prefix_of_the_keys_may_be_another() -> None:
    given = {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "remote.log.storage.manager.impl.prefix": "my.", "my.dir": "/a"}

    assert store_settings(BrokerConfig(given)).directory == "/a"


@pytest.mark.parametrize(
    ("backend", "keys"),
    [(GCS, {"storage.gcs.bucket.name": "b"}), (AZURE, {"storage.azure.container.name": "c", "storage.azure.account.name": "a"})],
)
def test_there_are_other_clouds(backend: str, keys: dict[str, str]) -> None:
    assert settings_of({"storage.backend.class": backend, **keys}).backend == backend


FAULTS = {
    "no directory": ({}, LOCAL_TIERED_STORAGE, "rsm.config.dir"),
    "a relative directory": ({"dir": "shared"}, LOCAL_TIERED_STORAGE, "rsm.config.dir"),
    "no backend": ({}, AIVEN_REMOTE_STORAGE, "rsm.config.storage.backend.class"),
    "another backend": ({"storage.backend.class": "x"}, AIVEN_REMOTE_STORAGE, "rsm.config.storage.backend.class"),
    "no bucket": ({"storage.backend.class": S3, "storage.s3.region": "r"}, AIVEN_REMOTE_STORAGE, "storage.s3.bucket.name"),
    "no region": ({"storage.backend.class": S3, "storage.s3.bucket.name": "b"}, AIVEN_REMOTE_STORAGE, "storage.s3.region"),
    "an address without its protocol": (
        S3_KEYS | {"storage.s3.endpoint.url": "s3.example.com:9000"},
        AIVEN_REMOTE_STORAGE,
        "s3.endpoint.url",
    ),
    "an address that is none": (S3_KEYS | {"storage.s3.endpoint.url": "http://[::1"}, AIVEN_REMOTE_STORAGE, "s3.endpoint.url"),
    "chunks of nothing": (S3_KEYS | {"chunk.size": "0"}, AIVEN_REMOTE_STORAGE, "chunk.size"),
    "encryption without a key": (S3_KEYS | {"encryption.enabled": "true"}, AIVEN_REMOTE_STORAGE, "encryption.key.pair.id"),
    "a key without its files": (
        S3_KEYS | {"encryption.key.pairs": "a", "encryption.key.pairs.a.public.key.file": "/a"},
        AIVEN_REMOTE_STORAGE,
        r"encryption.key.pairs.a.private.key.file",
    ),
    "another format": (S3_KEYS | {"segment.format": "iceberg"}, AIVEN_REMOTE_STORAGE, "segment.format"),
    "an unknown field": (S3_KEYS | {"custom.metadata.fields.include": "SIZE"}, AIVEN_REMOTE_STORAGE, "custom.metadata.fields.include"),
    "a flag that is none": (S3_KEYS | {"compression.enabled": "perhaps"}, AIVEN_REMOTE_STORAGE, "compression.enabled"),
}


@pytest.mark.parametrize(("keys", "name", "named"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_named_by_its_key(keys: dict[str, str], name: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        settings_of(keys, name)
