"""Makes stores of remote segments for tests, and the files that are copied into them."""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ottla.broker.remote.object_store import ObjectStore
from ottla.broker.remote.objects import open_objects
from ottla.config.broker import BrokerConfig
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from ottla.config.remote_store import GCS, StoreSettings, store_settings
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition
from ottla.storage.remote.ports import SegmentFiles
from tests.support.moto_server import s3_keys

_Result = TypeVar("_Result")

KEYS = Path(__file__).parents[1] / "golden" / "tiered" / "keys"
KEY_RING = {
    "encryption.enabled": "true",
    "encryption.key.pair.id": "k1",
    "encryption.key.pairs": "k1",
    "encryption.key.pairs.k1.public.key.file": str(KEYS / "public.pem"),
    "encryption.key.pairs.k1.private.key.file": str(KEYS / "private.pem"),
}
"""The throw-away keys of the recorded objects."""
PARTITION = TopicIdPartition(bytes(range(16)), "orders", 3)


async def _at_once(work: Callable[[], _Result]) -> _Result:
    return work()


def at_once(work: Callable[[], _Result]) -> Awaitable[_Result]:
    """Does the work of threads in the test's own."""
    return _at_once(work)


def a_directory_store(directory: Path) -> DirectoryStore:
    """A store on this directory, which exists, that works in the test's thread."""
    store = DirectoryStore(RealFileSystem(), str(directory), at_once)
    store.prepare()
    return store


def an_s3_store(url: str, **keys: str) -> ObjectStore:
    """A store in the bucket `bucket` of the S3 at this address."""
    return an_object_store(s3_keys(url, **keys))


def a_gcs_store(url: str) -> ObjectStore:
    """A store in the bucket `bucket` of the server at this address, which speaks the XML API of Google Cloud Storage.

    moto does: that API is S3's but for the authorization. A service account signs its requests with a key; moto does not check them.
    """
    account = {
        "client_email": "tests@example.com",
        "private_key": (KEYS / "private.pem").read_text(encoding="utf-8"),
        "private_key_id": "k1",
        "gcs_base_url": url,
        "disable_oauth": False,
    }
    keys = {
        "storage.backend.class": GCS,
        "storage.gcs.bucket.name": "bucket",
        "storage.gcs.endpoint.url": url,
        "storage.gcs.credentials.json": json.dumps(account),
    }
    return an_object_store({f"rsm.config.{name}": value for name, value in keys.items()})


def an_object_store(keys: Mapping[str, str]) -> ObjectStore:
    """A store with these keys of a broker."""
    settings = object_settings(keys)
    return ObjectStore(open_objects(settings), settings, RealFileSystem(), at_once)


def object_settings(keys: Mapping[str, str]) -> StoreSettings:
    """The settings of a broker with these keys of an object store."""
    return store_settings(BrokerConfig({"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, **keys}))


def directory_settings(directory: Path) -> StoreSettings:
    """The settings of a broker whose store is this directory."""
    keys = {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(directory)}
    return store_settings(BrokerConfig(keys))


def an_entry(start_offset: int, end_offset: int, size: int, uuid: int = 1) -> SegmentEntry:
    """An entry of a copy of `orders-3` that has begun, whose uuid is this byte sixteen times."""
    return SegmentEntry(
        SegmentId(PARTITION, bytes([uuid] * 16)),
        start_offset,
        end_offset,
        broker_id=1,
        max_timestamp_ms=1000,
        event_timestamp_ms=2000,
        leader_epochs={0: start_offset},
        size=size,
        state=SegmentState.COPY_SEGMENT_STARTED,
    )


def segment_files(
    directory: Path, records: bytes, *, offset_index: bytes = b"o" * 8, time_index: bytes = b"t" * 12, transactions: bytes | None = None
) -> SegmentFiles:
    """The parts of a segment, as files in this directory."""
    for name, data in ((".log", records), (".index", offset_index), (".timeindex", time_index), (".txnindex", transactions)):
        if data is not None:
            (directory / name).write_bytes(data)
    return SegmentFiles(
        log=str(directory / ".log"),
        offset_index=str(directory / ".index"),
        time_index=str(directory / ".timeindex"),
        transaction_index=None if transactions is None else str(directory / ".txnindex"),
        producer_snapshot=b"snapshot",
        leader_epochs=b"0\n1\n0 0\n",
    )
