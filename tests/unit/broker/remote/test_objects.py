"""Segments are copied piece by piece, and their contents are signed where nothing else protects them."""

import asyncio
from pathlib import Path

import pytest

from ottla.broker.remote import object_store
from ottla.storage.remote.ports import RemoteStoreError
from tests.support.moto_server import s3_keys
from tests.support.remote_stores import an_entry, an_object_store, segment_files
from tests.unit.broker.remote.test_encryption import RECORDS, a_memory, a_store

ENTRY = an_entry(0, 99, len(RECORDS))


@pytest.mark.parametrize("piece_bytes", [1000, 10_239, 10_240, 1 << 20])
def test_a_copy_in_pieces_is_the_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(object_store, "PIECE_BYTES", piece_bytes)

    async def story() -> bytes:
        store = a_store(a_memory())
        await store.copy(ENTRY, segment_files(tmp_path, RECORDS))
        return bytes(await store.fetch(ENTRY, 0, len(RECORDS)))

    assert asyncio.run(story()) == RECORDS


def test_a_file_that_ends_early_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PIECE_BYTES", 1000)
    files = segment_files(tmp_path, RECORDS)

    async def story() -> None:
        store = a_store(a_memory())
        read = store._read_piece

        def cut(path: str, at: int, *more: object) -> bytes:
            if at == 2000:
                Path(path).write_bytes(RECORDS[:2500])
            return read(path, at, *more)  # type: ignore[arg-type]  # passed on as they come

        monkeypatch.setattr(store, "_read_piece", cut)
        with pytest.raises(RemoteStoreError, match="has become shorter"):
            await store.copy(ENTRY, files)

    asyncio.run(story())


@pytest.mark.parametrize(("limit", "calls"), [("MAX_INDEXES_BYTES", 0), ("MAX_MANIFEST_BYTES", 2)])
def test_what_could_not_be_read_again_is_not_copied(limit: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment would be removed here once the copy is finished."""

    async def story() -> None:
        memory = a_memory()
        store = a_store(memory)
        monkeypatch.setattr(object_store, limit, 20)
        with pytest.raises(RemoteStoreError, match="more than the 20 that are read"):
            await store.copy(ENTRY, segment_files(tmp_path, RECORDS))
        assert len([each async for each in store.list("")]) == calls
        monkeypatch.undo()
        await store.copy(ENTRY, segment_files(tmp_path, RECORDS))
        assert bytes(await store.fetch(ENTRY, 0, len(RECORDS))) == RECORDS

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "keys", "is_signed"),
    [
        ("https://store.example", {}, False),
        ("https://store.example", {"storage.aws.certificate.check.enabled": "false"}, True),
        ("http://store.example", {}, True),
    ],
)
def test_contents_are_signed_where_tls_does_not_protect_them(url: str, keys: dict[str, str], is_signed: bool) -> None:
    store = an_object_store(s3_keys(url, **keys))
    config = store._objects._store.config  # type: ignore[union-attr]  # a store in S3 has it
    assert (str(config.get("unsigned_payload", "false")).lower() == "false") is is_signed
