"""Records of `__remote_log_metadata` have the bytes that Apache Kafka writes, and lie in the partitions that it chooses."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.messages.remote_log_records import RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataUpdateRecord
from ottla.protocol.schema.wire import ProtocolError
from ottla.protocol.uuid import from_text
from ottla.storage.remote.entries import SegmentEntry, SegmentId, SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.metadata.packed_entries import changed, unpack
from ottla.storage.remote.metadata.partitions import metadata_partition
from ottla.storage.remote.metadata.records import (
    DELETION,
    SEGMENT,
    UPDATE,
    UnknownRecord,
    encode_entry,
    encode_update,
    place_of,
    read_record,
)
from tests.support.remote_metadata import A_PARTITION, GOLDEN, an_entry, golden_values

LINES = [line.split() for line in (GOLDEN / "serde-and-partitions.txt").read_text().splitlines()]
BYTES = {name: bytes.fromhex(text) for name, text in (line for line in LINES if line[0] in ("add", "upd", "updcm", "del"))}
TOPIC1_42 = TopicIdPartition(bytes.fromhex("959eafbe66a34d62830544d5e92400b5"), "topic1", 42)
UUID = bytes.fromhex("69d87d7fc04c4b86a76949c3f0a59f5a")
EPOCHS = {0: 100, 1: 200, 2: 300}
ENTRY = SegmentEntry(
    SegmentId(TOPIC1_42, UUID), 100, 1000, 2, 1_000_000_000, 2_000_000_000, EPOCHS, 12345, SegmentState.COPY_SEGMENT_STARTED
)
UPDATES = {
    "upd": SegmentUpdate(ENTRY.id, 2, 2_000_000_001, SegmentState.COPY_SEGMENT_FINISHED),
    "updcm": SegmentUpdate(ENTRY.id, 2, 2_000_000_001, SegmentState.DELETE_SEGMENT_STARTED, bytes((1, 2, 3))),
}

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
customs = st.none() | st.binary(max_size=130)


@st.composite
def entries(draw: st.DrawFn) -> SegmentEntry:
    start = draw(st.integers(0, 2**62))
    end = start + draw(st.integers(0, 2**40))
    first = draw(st.sampled_from([start, start + 1]))
    epochs = {draw(int32): first} | draw(st.dictionaries(int32, int64, max_size=3))
    partition = TopicIdPartition(draw(st.binary(min_size=16, max_size=16)), draw(st.text("abc", min_size=1, max_size=249)), draw(int32))
    segment_id = SegmentId(partition, draw(st.binary(min_size=16, max_size=16)))
    times = draw(int64), draw(int64)
    state = draw(st.sampled_from(SegmentState))
    return SegmentEntry(segment_id, start, end, draw(int32), *times, dict(sorted(epochs.items())), draw(int32), state, draw(customs))


def test_a_new_segment_has_the_bytes_of_apache_kafka() -> None:
    assert encode_entry(ENTRY) == BYTES["add"]


@pytest.mark.parametrize("name", UPDATES)
def test_a_new_state_has_the_bytes_of_apache_kafka(name: str) -> None:
    assert encode_update(UPDATES[name]) == BYTES[name]


def test_the_deletion_of_a_partition_is_read() -> None:
    record = read_record(BYTES["del"])
    assert (record.kind, record.place, record.state) == (DELETION, place_of(TOPIC1_42), 1)


@pytest.mark.parametrize(("index", "partition"), [(line[1], line[2]) for line in LINES if line[0] == "part"])
def test_partitions_of_one_topic_have_the_metadata_partitions_of_apache_kafka(index: str, partition: str) -> None:
    place = TopicIdPartition(from_text("lZ6vvmajTWKDBUTV6SQAtQ"), "any", int(index))
    assert metadata_partition(place, 50) == int(partition)


def test_partitions_of_random_topics_have_the_metadata_partitions_of_apache_kafka() -> None:
    lines = [line[1:] for line in LINES if line[0] == "rnd"]
    found = [metadata_partition(TopicIdPartition(from_text(topic_id), "any", int(index)), 50) for topic_id, index, _ in lines]
    assert len(lines) == 200
    assert found == [int(partition) for _, _, partition in lines]


def test_records_of_apache_kafka_are_read_and_written_again() -> None:
    kinds = []
    for value in golden_values():
        record = read_record(value)
        kinds.append(record.kind)
        partition = TopicIdPartition(record.place[:16], value[4 : 3 + value[3]].decode(), int.from_bytes(record.place[16:], "big"))
        if record.kind == SEGMENT:
            assert encode_entry(unpack(partition, record.key, record.packed)) == value
        else:
            segment_id = SegmentId(partition, record.key.to_bytes(16, "big"))
            update = SegmentUpdate(segment_id, record.broker_id, record.event_timestamp_ms, SegmentState(record.state), record.custom)
            assert encode_update(update) == value
    assert kinds.count(SEGMENT) > 40
    assert kinds.count(UPDATE) > 40


@given(entries())
@settings(deadline=None)
def test_an_entry_is_what_was_written(entry: SegmentEntry) -> None:
    value = encode_entry(entry)
    record = read_record(value)
    assert (record.kind, record.place) == (SEGMENT, place_of(entry.id.partition))
    assert unpack(entry.id.partition, record.key, record.packed) == entry
    message, end = RemoteLogSegmentMetadataRecord.decode(value, 0, 3)
    assert end == len(value)
    assert (message.start_offset, message.end_offset) == (entry.start_offset, entry.end_offset)


@given(entries(), int32, int64, customs, st.sampled_from(SegmentState))
@settings(deadline=None)
def test_an_update_is_what_was_written(
    entry: SegmentEntry, broker_id: int, time_ms: int, custom: bytes | None, state: SegmentState
) -> None:
    value = encode_update(SegmentUpdate(entry.id, broker_id, time_ms, state, custom))
    record = read_record(value)
    assert record.key.to_bytes(16, "big") == entry.id.uuid
    assert record[4:] == (state, broker_id, time_ms, custom)
    message, end = RemoteLogSegmentMetadataUpdateRecord.decode(value, 0, 3)
    assert end == len(value)
    assert message.event_timestamp_ms == time_ms
    packed = changed(read_record(encode_entry(entry)).packed, *record[4:])
    after = unpack(entry.id.partition, record.key, packed)
    assert (after.state, after.broker_id, after.event_timestamp_ms, after.custom) == (state, broker_id, time_ms, custom)
    assert (after.leader_epochs, after.size, after.end_offset) == (entry.leader_epochs, entry.size, entry.end_offset)


@given(st.binary(max_size=200) | st.builds(lambda at, byte: _with(encode_entry(ENTRY), at, byte), st.integers(0, 152), st.integers(0, 255)))
@settings(deadline=None)
def test_any_bytes_are_a_record_or_an_error_of_the_protocol(value: bytes) -> None:
    with suppress(ProtocolError):
        read_record(value)


@pytest.mark.parametrize("value", [b"\x00\x00\x00", b"\x01\x03\x00", b"\x01\x00\x01", b"\x01\x04\x00", b"\x01\x80\x01\x00"])
def test_kinds_and_versions_of_other_releases_are_told_apart(value: bytes) -> None:
    with pytest.raises(UnknownRecord):
        read_record(value + BYTES["add"][3:])


@pytest.mark.parametrize(
    "entry",
    [an_entry(1, 5, 4), an_entry(1, -1, 4), an_entry(1, 0, 4, {})],
    ids=["ends before its start", "starts below 0", "has no epoch"],
)
def test_values_that_no_broker_writes_are_refused(entry: SegmentEntry) -> None:
    with pytest.raises(ProtocolError):
        read_record(encode_entry(entry))


def test_a_state_of_another_release_is_refused() -> None:
    value = encode_entry(an_entry(1, 0, 4))
    with pytest.raises(ProtocolError):
        read_record(value[:-2] + b"\x04\x00")


def test_tags_of_newer_releases_are_skipped() -> None:
    entry = an_entry(7, 0, 4)
    record = read_record(encode_entry(entry)[:-1] + b"\x01\x00\x01\x01")  # tag 0, one byte: the transaction index is empty
    assert unpack(A_PARTITION, record.key, record.packed) == entry


def _with(value: bytes, at: int, byte: int) -> bytes:
    return value[:at] + bytes((byte,)) + value[at + 1 :]
