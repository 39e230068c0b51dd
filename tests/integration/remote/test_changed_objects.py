"""A byte of a manifest or an index that is changed on its way costs at most the read: later ones get the right records."""

from pathlib import Path

import pytest

from ottla.broker.remote.object_store import ObjectStore
from ottla.broker.remote.objects import Objects
from ottla.config.broker import BrokerConfig
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE
from ottla.config.remote_store import store_settings
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.ports import RemoteStoreError
from tests.support.moto_server import s3_keys
from tests.support.remote_reading import a_reading, copy_closed_segments, run
from tests.support.remote_stores import at_once
from tests.unit.storage.remote.test_segment_reader import a_local_log, local_bytes, read_segments

CHUNK_BYTES = 2000


class ChangedObjects(Objects):
    """Objects in memory, of whose kind `kind` one byte is changed when it is read."""

    def __init__(self, store: object) -> None:
        super().__init__(store, "bucket")  # type: ignore[arg-type]  # all stores of obstore have the same calls
        self.kind = ""
        self.at = self.mask = 0

    async def get(self, key: str, most: int) -> bytes:
        """See Objects."""
        return bytes(self._changed(key, 0, await super().get(key, most)))

    async def get_beginning(self, key: str, start: int, end: int) -> memoryview:
        """See Objects."""
        return memoryview(self._changed(key, start, await super().get_beginning(key, start, end)))

    def _changed(self, key: str, start: int, found: bytes | memoryview) -> bytearray:
        data = bytearray(found)
        if key.endswith(f".{self.kind}") and start <= self.at < start + len(data):
            data[self.at - start] ^= self.mask
        return data


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("kind", ["rsm-manifest", "indexes"])
def test_a_changed_byte_harms_one_read_at_most(tmp_path: Path, kind: str, is_compressed: bool) -> None:
    from obstore.store import MemoryStore

    memory = MemoryStore()
    keys = s3_keys("http://127.0.0.1:1", **{"chunk.size": str(CHUNK_BYTES), "compression.enabled": str(is_compressed).lower()})
    settings = store_settings(BrokerConfig({"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, **keys}))
    log = a_local_log(tmp_path, value_bytes=400)

    def a_store() -> tuple[ChangedObjects, ObjectStore]:
        objects = ChangedObjects(memory)
        return objects, ObjectStore(objects, settings, RealFileSystem(), at_once)

    async def story() -> None:
        objects, store = a_store()
        entries = (await copy_closed_segments(log, store))[:1]
        expected = local_bytes(log, entries)
        (key,) = [each.name async for each in store.list("") if f"/{0:020d}-" in each.name and each.name.endswith(f".{kind}")]
        failures = 0
        for at in range(len(await objects.get(key, 1 << 20))):
            objects, store = a_store()
            objects.kind, objects.at, objects.mask = kind, at, 1 if at % 2 else 4
            cache = tmp_path / f"cache-{at}"
            cache.mkdir()
            reading = a_reading(store, cache, chunk_bytes=CHUNK_BYTES)
            try:
                assert await read_segments(reading, entries, 1 << 20) == expected
            except RemoteStoreError:
                failures += 1
            objects.mask = 0
            assert await read_segments(reading, entries, 1 << 20) == expected, at
            await reading.reader.close()
        assert failures

    run(story)
