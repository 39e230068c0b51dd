"""Manifests are read and written as Aiven's plugin wrote them, and malformed ones are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.batch import crc_is_valid, parse_header
from ottla.protocol.uuid import from_text
from ottla.storage.remote.chunk_index import ChunkIndex, MalformedChunks, decode_sizes, encode_sizes, fixed_index
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition
from ottla.storage.remote.manifest import (
    MalformedManifest,
    Manifest,
    read_manifest,
    size_of_indexes,
    write_manifest,
)
from ottla.storage.remote.ports import IndexKind

GOLDEN = Path(__file__).parents[3] / "golden" / "tiered"
MANIFESTS = sorted(GOLDEN.glob("*/*.rsm-manifest"))


def entry_of(manifest: bytes) -> SegmentEntry:
    fields = json.loads(manifest)["remoteLogSegmentMetadata"]
    of = fields["remoteLogSegmentId"]
    topic = of["topicIdPartition"]
    partition = TopicIdPartition(from_text(topic["topicId"]), topic["topicPartition"]["topic"], topic["topicPartition"]["partition"])
    epochs = {int(epoch): offset for epoch, offset in fields["segmentLeaderEpochs"].items()}
    return SegmentEntry(
        SegmentId(partition, from_text(of["id"])),
        fields["startOffset"],
        fields["endOffset"],
        fields["brokerId"],
        fields["maxTimestampMs"],
        fields["eventTimestampMs"],
        epochs,
        1,
        SegmentState.COPY_SEGMENT_FINISHED,
    )


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}-{path.name[16:26]}")
def test_a_recorded_manifest_is_written_as_it_was_read(path: Path) -> None:
    recorded = path.read_bytes()

    written = json.loads(write_manifest(read_manifest(recorded), entry_of(recorded)))

    expected = json.loads(recorded)
    if not (chunks := expected["chunkIndex"]).get("transformedChunks"):
        assert write_manifest(read_manifest(recorded), entry_of(recorded)) == recorded
    else:  # another library may compress the sizes otherwise
        del chunks["transformedChunks"], written["chunkIndex"]["transformedChunks"]
    assert written == expected


def test_there_are_recorded_manifests_of_all_kinds() -> None:
    kinds = {(m.chunks.is_fixed, m.is_compressed, m.encryption is not None) for m in (read_manifest(p.read_bytes()) for p in MANIFESTS)}

    assert kinds == {(True, False, False), (False, True, False), (False, True, True)}


def test_the_recorded_indexes_are_taken_apart_and_joined_again() -> None:
    path = GOLDEN / "aiven-plain" / "00000000000000000000-yIG0POKPRYSWoxRvY7__TQ.rsm-manifest"
    manifest = read_manifest(path.read_bytes())
    data = path.with_suffix(".indexes").read_bytes()

    at, size = manifest.indexes[IndexKind.LEADER_EPOCH]
    assert data[at : at + size] == b"0\n1\n0 0\n"
    assert IndexKind.TRANSACTION not in manifest.indexes
    assert size_of_indexes(manifest.indexes) == len(data)


def test_the_recorded_chunks_hold_valid_batches() -> None:
    path = GOLDEN / "zstd" / "00000000000000003072-tCHk6R970x0rnp0p_S783A.rsm-manifest"
    chunks = read_manifest(path.read_bytes()).chunks
    data = path.with_suffix(".log").read_bytes()  # the first two chunks alone

    found = chunks.covering(0, 2 * chunks.original_chunk_size)
    records, at = b"", 0
    for size in found.sizes:
        records += zstandard.ZstdDecompressor().decompress(data[at : at + size])
        at += size

    assert (found.start, found.end, found.original_start) == (0, len(data), 0)
    assert len(records) == 2 * chunks.original_chunk_size
    assert parse_header(records, 0).base_offset == 3072
    assert crc_is_valid(records, 0)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40))
def test_sizes_of_chunks_are_decoded_as_they_were_encoded(sizes: list[int]) -> None:
    assert decode_sizes(encode_sizes(sizes)) == sizes


@given(chunk=st.integers(1, 50), size=st.integers(1, 500), data=st.data())
def test_a_range_of_chunks_covers_what_is_asked_for_and_no_more(chunk: int, size: int, data: st.DataObject) -> None:
    count = -(-size // chunk)
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=count, max_size=count))
    start = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(start + 1, size))
    index = ChunkIndex(chunk, size, sizes, is_fixed=False)

    found = index.covering(start, end)

    first = found.original_start // chunk
    assert found.original_start <= start < found.original_start + chunk
    assert found.original_start + len(found.sizes) * chunk >= end > found.original_start + (len(found.sizes) - 1) * chunk
    assert list(found.sizes) == sizes[first : first + len(found.sizes)]
    assert (found.start, found.end) == (sum(sizes[:first]), sum(sizes[: first + len(found.sizes)]))


def changed(change: Callable[[dict[str, Any]], None]) -> bytes:
    fields = json.loads(MANIFESTS[0].read_bytes())
    change(fields)
    return json.dumps(fields).encode()


MALFORMED = {
    "no json": b"\xff",
    "no object": b"[]",
    "another version": changed(lambda m: m.update(version="2")),
    "no chunks": changed(lambda m: m.pop("chunkIndex")),
    "an unknown kind of chunks": changed(lambda m: m["chunkIndex"].update(type="other")),
    "too many chunks": changed(lambda m: m["chunkIndex"].update(originalChunkSize=1, originalFileSize=2**40)),
    "a chunk of nothing": changed(lambda m: m["chunkIndex"].update(originalChunkSize=0)),
    "a size that is no number": changed(lambda m: m["chunkIndex"].update(originalFileSize=True)),
    "sizes that are no frame": changed(lambda m: m["chunkIndex"].update(type="variable", transformedChunks="AAAA")),
    "sizes that are no base64": changed(lambda m: m["chunkIndex"].update(type="variable", transformedChunks="!")),
    "an index before its object": changed(lambda m: m["segmentIndexes"]["offset"].update(position=-1)),
    "no compression": changed(lambda m: m.pop("compression")),
    "encryption without a key": changed(lambda m: m.update(encryption={"aad": ""})),
    "a deep one": b"[" * 100_000,
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedManifest):
        read_manifest(data)


def test_a_frame_that_expands_without_end_is_refused() -> None:
    import base64

    frame = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    data = changed(lambda m: m["chunkIndex"].update(type="variable", transformedChunks=base64.b64encode(frame).decode()))

    with pytest.raises(MalformedManifest):
        read_manifest(data)


def test_indexes_that_do_not_follow_one_another_are_refused() -> None:
    with pytest.raises(MalformedManifest, match="timestamp is at 5, and the index before it ends at 4"):
        size_of_indexes({IndexKind.OFFSET: (0, 4), IndexKind.TIMESTAMP: (5, 4)})


def test_a_segment_of_one_chunk_has_the_size_of_that() -> None:
    index = fixed_index(100, 60)

    assert list(index.sizes) == [60]
    assert Manifest(index, {}, False).chunks.fields()["finalTransformedChunkSize"] == 60


@pytest.mark.parametrize(("chunk", "size", "sizes"), [(10, 30, [1, 2]), (10, 5, [-1]), (0, 5, [5])])
def test_chunks_that_do_not_fit_their_segment_are_refused(chunk: int, size: int, sizes: list[int]) -> None:
    with pytest.raises(MalformedChunks):
        ChunkIndex(chunk, size, sizes, is_fixed=False)
