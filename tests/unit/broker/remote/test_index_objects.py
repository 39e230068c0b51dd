"""Indexes go to their object and to files in pieces, and are the same as those in one piece; an object that lies is refused early."""

import asyncio
import json
from pathlib import Path

import obstore
import pytest

from ottla.broker.remote import index_objects, object_store
from ottla.broker.remote.encryption import CopyCipher
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.object_layout import INDEXES, MANIFEST, main_key
from ottla.storage.remote.ports import IndexKind, RemoteStoreError, SegmentFiles
from tests.support.remote_stores import KEY_RING, an_entry, segment_files
from tests.unit.broker.remote.test_encryption import PLAIN, RECORDS, a_memory, a_store

ENTRY = an_entry(0, 99, len(RECORDS))
WANTED = (IndexKind.OFFSET, IndexKind.TIMESTAMP, IndexKind.TRANSACTION)


def files_in(tmp_path: Path, transactions: bytes | None) -> SegmentFiles:
    return segment_files(tmp_path, RECORDS, offset_index=b"o" * 4000, time_index=b"", transactions=transactions)


def saved_in(tmp_path: Path) -> dict[IndexKind, str]:
    return {kind: str(tmp_path / f"saved {kind.name}") for kind in WANTED}


@pytest.mark.parametrize("transactions", [None, b"", b"x" * 34, bytes(range(256)) * 133])
@pytest.mark.parametrize("keys", [PLAIN, KEY_RING])
@pytest.mark.parametrize("piece_bytes", [1, 13, 1000, 4000, 4028, 1 << 20])
def test_indexes_in_pieces_are_those_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactions: bytes | None, keys: dict[str, str], piece_bytes: int
) -> None:
    if piece_bytes < 1000 and transactions is not None and len(transactions) > 100:
        piece_bytes += 500  # which has odd borders, too
    monkeypatch.setattr(object_store, "INDEX_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(object_store, "PART_BYTES", 1000)
    monkeypatch.setattr(index_objects, "_FILE_BYTES", 777)

    async def story() -> None:
        store = a_store(a_memory(), **keys)
        await store.copy(ENTRY, files_in(tmp_path, transactions))
        paths = saved_in(tmp_path)
        await store.save_indexes(ENTRY, paths)
        for kind, expected in zip(WANTED, (b"o" * 4000, b"", transactions or b""), strict=True):
            assert RealFileSystem().read_file(paths[kind]) == expected
            assert await store.index(ENTRY, kind) == expected
            assert await store.index_size(ENTRY, kind) == len(expected)
        with pytest.raises(RemoteStoreError, match="more than the"):
            await store.index(ENTRY, IndexKind.OFFSET, 3900)

    asyncio.run(story())


def test_a_part_in_pieces_is_encrypted_as_one() -> None:
    cipher = CopyCipher(bytes(32), b"aad")
    pieces = [b"a" * 5, b"", b"b" * 100]

    assert b"".join(cipher.encrypt_pieces(pieces, b"part")) == cipher.encrypt(b"".join(pieces), b"part")


@pytest.mark.parametrize("keys", [PLAIN, KEY_RING])
@pytest.mark.parametrize("piece_bytes", [1000, 1 << 20])
@pytest.mark.parametrize("change", ["cut", "longer", "flipped"])
def test_an_object_that_is_not_what_its_manifest_says_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, str], piece_bytes: int, change: str
) -> None:
    monkeypatch.setattr(object_store, "INDEX_PIECE_BYTES", piece_bytes)
    if change == "flipped" and keys is PLAIN:
        pytest.skip("the checksum in the entry finds it")

    async def story() -> None:
        memory = a_memory()
        store = a_store(memory, **keys)
        await store.copy(ENTRY, files_in(tmp_path, b"x" * 3400))
        key = f"{main_key(ENTRY)}.{INDEXES}"
        data = bytes((await obstore.get_async(memory, key)).bytes())  # type: ignore[arg-type]  # a store
        changed = {"cut": data[:-1], "longer": data + bytes(5000), "flipped": data[:100] + bytes([data[100] ^ 1]) + data[101:]}
        await obstore.put_async(memory, key, changed[change])  # type: ignore[arg-type]  # a store
        with pytest.raises(RemoteStoreError, match=r"their object has|was changed"):
            await store.save_indexes(ENTRY, saved_in(tmp_path))

    asyncio.run(story())


def test_a_manifest_with_gigantic_indexes_is_refused_before_they_are_read(tmp_path: Path) -> None:
    async def story() -> None:
        memory = a_memory()
        await a_store(memory).copy(ENTRY, files_in(tmp_path, b"x" * 34))
        key = f"{main_key(ENTRY)}.{MANIFEST}"
        manifest = json.loads(bytes((await obstore.get_async(memory, key)).bytes()))  # type: ignore[arg-type]  # a store
        manifest["segmentIndexes"]["transaction"]["size"] = 1 << 40
        await obstore.put_async(memory, key, json.dumps(manifest).encode())  # type: ignore[arg-type]  # a store
        store = a_store(memory)
        for call in (
            store.save_indexes(ENTRY, saved_in(tmp_path)),
            store.index_size(ENTRY, IndexKind.TRANSACTION),
            store.index(ENTRY, IndexKind.TRANSACTION),
        ):
            with pytest.raises(RemoteStoreError, match="more than the"):
                await call

    asyncio.run(story())


def test_manifests_with_many_chunks_are_kept_up_to_a_number_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "MOST_CHUNKS", 7)  # a segment here has 3

    async def story() -> None:
        store = a_store(a_memory())
        for at in range(1, 5):
            entry = an_entry(0, 99, len(RECORDS), uuid=at)
            await store.copy(entry, files_in(tmp_path, None))
            await store.fetch(entry, 0, 10)
        assert (len(store._manifests), store._chunks) == (2, 6)
        await store.delete(entry)
        assert (len(store._manifests), store._chunks) == (1, 3)

    asyncio.run(story())
