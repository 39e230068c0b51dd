"""Starts the remote stores of brokers with tiered storage: a directory, and S3 by versitygw, with or without a network before it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.brokers.kinds import COMMON_CONFIG
from benchmarks.loadgen.late_proxy import LateProxy, a_late_proxy
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE
from tests.support.apache_kafka_tiered import tiered_config
from tests.support.moto_server import s3_keys
from tests.support.versitygw import a_versitygw

DIRECTORY: Final = "directory"
S3: Final = "s3"
LATE_S3: Final = "s3-30ms"
ROUND_TRIP_MS: Final = 30.0
TITLES: Final[Mapping[str, str]] = {DIRECTORY: "directory", S3: "S3", LATE_S3: f"S3 at {ROUND_TRIP_MS:.0f} ms"}
_BUCKET: Final = "bucket"


@dataclass(frozen=True, slots=True)
class RemoteStore:
    """A store. `config` are the properties of its brokers; `proxy` is there if the store is behind a network."""

    key: str
    config: Mapping[str, str]
    proxy: LateProxy | None = None


@contextmanager
def a_remote_store(key: str, folder: Path) -> Iterator[RemoteStore]:
    """A store with its files in this folder, for brokers of either kind if it is a directory. Raises NoVersitygwError, ToolMissingError."""
    folder.mkdir(parents=True)
    config = {
        **COMMON_CONFIG,
        **tiered_config(folder),
        "remote.log.manager.task.interval.ms": "100",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "200",
    }
    if key == DIRECTORY:
        yield RemoteStore(key, config)
        return
    config["remote.log.storage.manager.class.name"] = AIVEN_REMOTE_STORAGE
    keys = {"chunk.size": str(4 << 20)}
    with a_versitygw(folder, _BUCKET) as url:
        if key == S3:
            yield RemoteStore(key, config | s3_keys(url, _BUCKET, **keys))
            return
        with a_late_proxy(url, ROUND_TRIP_MS) as proxy:
            yield RemoteStore(key, config | s3_keys(proxy.url, _BUCKET, **keys), proxy)
