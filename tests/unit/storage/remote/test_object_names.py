"""Objects and files of a copy have the names that LocalTieredStorage and Aiven's plugin gave them."""

from pathlib import Path

import pytest

from ottla.protocol.uuid import from_text
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, TopicIdPartition
from ottla.storage.remote.local_layout import LOG_SUFFIX, SUFFIX_OF, partition_directory, segment_name
from ottla.storage.remote.object_layout import (
    LOG,
    MANIFEST,
    NO_METADATA,
    CustomMetadata,
    MalformedCustomMetadata,
    custom_metadata,
    is_marked,
    object_key,
    read_custom_metadata,
    with_mark,
)
from ottla.storage.remote.ports import IndexKind

GOLDEN = Path(__file__).parents[3] / "golden" / "tiered"


def an_entry_of(topic: str, topic_id: str, uuid: str, start_offset: int = 0) -> SegmentEntry:
    partition = TopicIdPartition(from_text(topic_id), topic, 0)
    return SegmentEntry(
        SegmentId(partition, from_text(uuid)), start_offset, start_offset, 1, 0, 0, {0: start_offset}, 1, SegmentState.COPY_SEGMENT_STARTED
    )


def test_the_files_of_a_copy_have_the_names_of_local_tiered_storage() -> None:
    entry = an_entry_of("orders", "Dfg9KDYASYWBXlNeyRDmMw", "w1f_8RNfRZSTmVZU343Ftw")

    recorded = (GOLDEN / "local" / "names.txt").read_text().split()

    suffixes = [LOG_SUFFIX, *(suffix for kind, suffix in SUFFIX_OF.items() if kind is not IndexKind.TRANSACTION)]
    assert sorted(segment_name(entry) + suffix for suffix in suffixes) == recorded
    assert partition_directory(entry.id.partition) == "orders-0-Dfg9KDYASYWBXlNeyRDmMw"


def test_the_objects_of_a_copy_have_the_names_of_the_plugin() -> None:
    entry = an_entry_of("av1", "Dfg9KDYASYWBXlNeyRDmMw", "B4fG0_tIQ4-lIz-e2YQRng", 2048)

    assert object_key("tier/", entry, MANIFEST) == (
        "tier/av1-Dfg9KDYASYWBXlNeyRDmMw/0/00000000000000002048-B4fG0_tIQ4-lIz-e2YQRng.rsm-manifest"
    )


def test_custom_metadata_moves_all_objects_but_the_manifest() -> None:
    entry = an_entry_of("av1", "Dfg9KDYASYWBXlNeyRDmMw", "B4fG0_tIQ4-lIz-e2YQRng")
    custom = CustomMetadata(object_prefix="old/", object_key="elsewhere")

    assert object_key("new/", entry, LOG, custom) == "old/elsewhere.log"
    assert object_key("new/", entry, MANIFEST, custom).startswith("new/av1-")


def test_the_recorded_custom_metadata_is_the_size_of_all_objects() -> None:
    recorded = bytes.fromhex("010003fadc7e")

    assert read_custom_metadata(recorded) == CustomMetadata(remote_size=1038141)
    assert custom_metadata(CustomMetadata(remote_size=1038141)) == recorded


@pytest.mark.parametrize(
    "fields",
    [
        NO_METADATA,
        CustomMetadata(5, "a/", "b", bytes(20), True),
        CustomMetadata(2**40),
        CustomMetadata(-5),
        CustomMetadata(object_key="ü" * 9),
    ],
)
def test_custom_metadata_is_read_as_it_was_written(fields: CustomMetadata) -> None:
    assert read_custom_metadata(custom_metadata(fields)) == fields


NEGATIVE_SIZE = bytes.fromhex("01000109")


@pytest.mark.parametrize(
    "custom", [None, bytes.fromhex("010003fadc7e"), NEGATIVE_SIZE, custom_metadata(CustomMetadata(5, "a/", "b", bytes(20)))]
)
def test_a_mark_is_added_and_removed_without_another_change(custom: bytes | None) -> None:
    marked = with_mark(custom, True)
    assert (is_marked(custom), is_marked(marked)) == (False, True)
    assert with_mark(marked, True) == marked
    assert with_mark(marked, False) == custom


def test_metadata_with_fields_of_another_writer_get_no_mark() -> None:
    with pytest.raises(MalformedCustomMetadata):
        with_mark(b"\x01\x07\x01a", True)


@pytest.mark.parametrize("data", [b"\x01", b"\x01\x00\x05a", b"\xff" * 20, b"\x01\x01\x03\x03\xff\xfe", b"\x01\x00\x00"])
def test_other_bytes_are_no_custom_metadata(data: bytes) -> None:
    with pytest.raises(MalformedCustomMetadata):
        read_custom_metadata(data)
