"""Copies are encrypted as by Aiven's plugin, with keys that can be changed, and a key that does not fit is told in one line."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from Crypto.PublicKey import RSA

from ottla.broker.remote.encryption import KeyRing, new_secret
from ottla.broker.remote.object_store import ObjectStore
from ottla.broker.remote.objects import Objects
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE
from ottla.config.remote_store import EncryptionSettings, store_settings
from ottla.protocol.uuid import from_text
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.copy_proof import CopyProof
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition
from ottla.storage.remote.object_layout import main_key
from ottla.storage.remote.ports import IndexKind, RemoteStoreError
from ottla.storage.remote.record_walk import read_batches
from tests.support.moto_server import s3_keys
from tests.support.remote_stores import KEY_RING, KEYS, an_entry, at_once, segment_files

GOLDEN = KEYS.parent / "aiven-zstd-aes"
RECORDS = bytes(range(256)) * 40
PLAIN: dict[str, str] = {}


def a_store(memory: object, **keys: str) -> ObjectStore:
    given = s3_keys("http://127.0.0.1:1", **{"chunk.size": "4000", **keys})
    settings = store_settings(BrokerConfig({"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, **given}))
    objects = Objects(memory, "bucket")  # type: ignore[arg-type]  # all stores of obstore have the same calls
    return ObjectStore(objects, settings, RealFileSystem(), at_once)


def a_memory() -> object:
    from obstore.store import MemoryStore

    return MemoryStore()


def a_pair(directory: Path, name: str) -> dict[str, str]:
    """The files of a new pair, as keys of the store."""
    key = RSA.generate(2048)
    (directory / f"{name}.private.pem").write_bytes(key.export_key())
    (directory / f"{name}.public.pem").write_bytes(key.public_key().export_key())
    return {f"encryption.key.pairs.{name}.{kind}.key.file": str(directory / f"{name}.{kind}.pem") for kind in ("public", "private")}


def recorded_entry() -> tuple[SegmentEntry, dict[str, bytes]]:
    """The entry of the encrypted segment that the plugin wrote, and its objects."""
    (log,) = GOLDEN.glob("*.log")
    parts = {suffix: log.with_suffix(f".{suffix}").read_bytes() for suffix in ("log", "indexes", "rsm-manifest")}
    manifest = json.loads(parts["rsm-manifest"])
    fields = manifest["remoteLogSegmentMetadata"]
    topic = fields["remoteLogSegmentId"]["topicIdPartition"]
    partition = TopicIdPartition(from_text(topic["topicId"]), topic["topicPartition"]["topic"], topic["topicPartition"]["partition"])
    return (
        SegmentEntry(
            SegmentId(partition, from_text(fields["remoteLogSegmentId"]["id"])),
            fields["startOffset"],
            fields["endOffset"],
            fields["brokerId"],
            fields["maxTimestampMs"],
            fields["eventTimestampMs"],
            {int(epoch): offset for epoch, offset in fields["segmentLeaderEpochs"].items()},
            manifest["chunkIndex"]["originalFileSize"],
            SegmentState.COPY_SEGMENT_FINISHED,
        ),
        parts,
    )


def test_a_segment_that_the_plugin_encrypted_is_read_and_proved() -> None:
    import obstore

    entry, parts = recorded_entry()
    memory = a_memory()
    for suffix, data in parts.items():
        obstore.put(memory, f"{main_key(entry)}.{suffix}", data)  # type: ignore[type-var]  # any store

    async def story() -> None:
        store = a_store(memory, **KEY_RING)
        proof = CopyProof(entry, {kind: await store.index(entry, kind) for kind in IndexKind})
        assert await store.index(entry, IndexKind.TRANSACTION)
        async for batches in read_batches(entry, store, at_once):
            proof.add(batches)
        assert proof.faults() == []

    asyncio.run(story())


@pytest.mark.parametrize("is_compressed", ["false", "true"])
def test_nothing_of_a_copy_is_readable_and_a_repeated_copy_has_the_same_bytes(tmp_path: Path, is_compressed: str) -> None:
    import obstore

    memory = a_memory()
    entry = an_entry(0, 99, len(RECORDS))
    text = b"these words are nowhere in the store" * 30
    records = text + RECORDS[len(text) :]

    def stored() -> dict[str, bytes]:
        return {suffix: bytes(obstore.get(memory, f"{main_key(entry)}.{suffix}").bytes()) for suffix in ("log", "indexes", "rsm-manifest")}

    async def story() -> None:
        store = a_store(memory, **KEY_RING, **{"compression.enabled": is_compressed})
        await store.copy(entry, segment_files(tmp_path, records))
        first = stored()
        assert not any(word in data for data in first.values() for word in (text[:12], b"snapshot", b"oooooooo"))
        await store.copy(entry, segment_files(tmp_path, records))
        assert stored() == first
        another = a_store(memory, **KEY_RING)
        assert await another.fetch(entry, 0, len(records)) == records
        assert await another.fetch(entry, 3999, 4001) == records[3999:4001]
        assert await another.index(entry, IndexKind.PRODUCER_SNAPSHOT) == b"snapshot"
        chunks = json.loads(first["rsm-manifest"])["chunkIndex"]
        if is_compressed == "false":
            assert (chunks["transformedChunkSize"], chunks["finalTransformedChunkSize"]) == (4028, len(records) % 4000 + 28)

    asyncio.run(story())


def test_a_changed_byte_of_an_encrypted_copy_is_never_answered(tmp_path: Path) -> None:
    import obstore

    memory = a_memory()
    entry = an_entry(0, 99, len(RECORDS))

    async def story() -> None:
        store = a_store(memory, **KEY_RING)
        await store.copy(entry, segment_files(tmp_path, RECORDS))
        for suffix in ("log", "indexes"):
            name = f"{main_key(entry)}.{suffix}"
            right = bytes(obstore.get(memory, name).bytes())
            for at in range(0, len(right), 97):
                changed = bytearray(right)
                changed[at] ^= 2
                obstore.put(memory, name, bytes(changed))
                with pytest.raises(RemoteStoreError, match=rf"^{main_key(entry)}: .*was changed"):
                    await store.fetch(entry, 0, len(RECORDS))
                    for kind in IndexKind:
                        await store.index(entry, kind)
            obstore.put(memory, name, right)

    asyncio.run(story())


def test_keys_are_changed_while_old_copies_stay_readable(tmp_path: Path) -> None:
    memory = a_memory()
    old, new = an_entry(0, 99, len(RECORDS), uuid=1), an_entry(100, 199, len(RECORDS), uuid=2)
    both = {**KEY_RING, **a_pair(tmp_path, "k2"), "encryption.key.pairs": "k1, k2"}

    async def story() -> None:
        await a_store(memory, **KEY_RING).copy(old, segment_files(tmp_path, RECORDS))
        await a_store(memory, **{**both, "encryption.key.pair.id": "k2"}).copy(new, segment_files(tmp_path, RECORDS))
        for keys in (both, both | {"encryption.enabled": "false"}):  # the last one writes plainly from now on
            store = a_store(memory, **keys)
            assert [await store.fetch(entry, 0, len(RECORDS)) for entry in (old, new)] == [RECORDS] * 2

    asyncio.run(story())


@pytest.mark.parametrize("case", ["without keys", "without that key", "another key of that name"])
def test_a_copy_whose_key_is_not_here_says_which(tmp_path: Path, case: str) -> None:
    memory = a_memory()
    entry = an_entry(0, 99, len(RECORDS))
    others: Mapping[str, Mapping[str, str]] = {
        "without keys": PLAIN,
        "without that key": {**a_pair(tmp_path, "k9"), "encryption.key.pairs": "k9"},
        "another key of that name": {**a_pair(tmp_path, "k1"), "encryption.key.pairs": "k1"},
    }

    async def story() -> None:
        await a_store(memory, **KEY_RING).copy(entry, segment_files(tmp_path, RECORDS))
        with pytest.raises(RemoteStoreError, match=r"orders-.*\bk1\b.*encryption\.key\.pairs") as refusal:
            await a_store(memory, **others[case]).fetch(entry, 0, 1)
        assert "\n" not in str(refusal.value)

    asyncio.run(story())


def a_file(directory: Path, content: bytes) -> str:
    path = directory / "key.pem"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    "public",
    [
        lambda directory: str(directory / "gone.pem"),
        lambda directory: a_file(directory, b"not a key"),
        lambda directory: a_file(directory, b""),
        lambda directory: str(KEYS / "private.pem"),
        lambda directory: a_pair(directory, "other")["encryption.key.pairs.other.public.key.file"],
        lambda directory: a_file(directory, RSA.generate(1024).public_key().export_key()),
    ],
    ids=["missing", "no key", "empty", "private", "of another pair", "short"],
)
def test_a_key_that_cannot_be_used_ends_the_start_with_one_line(tmp_path: Path, public: object) -> None:
    file = public(tmp_path)  # type: ignore[operator]  # one of the builders above
    with pytest.raises(ConfigError, match=r"encryption key.* k1.*pem") as refusal:
        KeyRing(EncryptionSettings(True, "k1", {"k1": (file, str(KEYS / "private.pem"))}), new_secret())
    assert "\n" not in str(refusal.value)
