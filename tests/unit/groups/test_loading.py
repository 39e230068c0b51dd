"""Groups and offsets come back out of the log: of Apache Kafka's recorded ones, of ours, and of damaged ones."""

import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordination.groups.classic_group import ClassicGroup, GroupSettings
from ottla.coordination.groups.group import GroupState
from ottla.coordination.groups.loading import GroupLoader
from ottla.coordination.groups.offset_records import OffsetAndMetadata, offset_key, offset_value, read_offset_value
from ottla.coordination.groups.records import group_key, group_value, read_group_value, read_key
from ottla.coordination.partitions.skipped import NAMED
from ottla.protocol.records.builder import ControlRecordType, EndTransactionMarker, build_batch, build_end_transaction_marker
from ottla.protocol.records.reader import Record, iter_records
from ottla.protocol.topic_partition import TopicPartition
from tests.support.golden_logs import LOGS
from tests.support.groups import a_stable_group, quiet

T0 = TopicPartition("t", 0)
MANIFESTS = sorted(LOGS.glob("*/__consumer_offsets-*.json"))


def name_of(manifest: Path) -> str:
    return f"{manifest.parent.name}/{manifest.stem}"


def load(*chunks: bytes) -> tuple[dict[str, ClassicGroup], GroupLoader]:
    loader = GroupLoader("__consumer_offsets-0", GroupSettings())
    groups: dict[str, ClassicGroup] = {}
    for chunk in chunks:
        for _ in loader.feed(chunk):
            pass
    for _ in loader.states(0, groups):
        pass
    return groups, loader


def golden_segments(manifest: Path) -> Iterable[tuple[bytes, list[dict[str, Any]]]]:
    """(bytes, batches of the manifest) of every segment."""
    for name, described in sorted(json.loads(manifest.read_text())["files"].items()):
        if name.endswith(".log"):
            yield (manifest.with_suffix("") / name).read_bytes(), described["batches"]


def golden_records(manifest: Path) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
    """(batch, record) of the manifest, in order."""
    for _, batches in golden_segments(manifest):
        for batch in batches:
            for record in batch.get("records", []):
                yield batch, record


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_recorded_keys_and_values_are_written_again_byte_for_byte(manifest: Path) -> None:
    for batch, record in golden_records(manifest):
        if batch["control"]:
            continue
        key = bytes.fromhex(record["key"]["hex"])
        value = None if record["value"] is None else bytes.fromhex(record["value"]["hex"])
        decoded = record["decoded_key"]
        if decoded["_message"] == "OffsetCommitKey":
            assert offset_key(decoded["group"], TopicPartition(decoded["topic"], decoded["partition"])) == key
            assert value is None or offset_value(read_offset_value(value)) == value
        else:
            assert group_key(decoded["group"]) == key
            if value is not None:
                (group,) = load(bytes(build_batch([Record(0, 0, key, value)])))[0].values()
                assert group_value(group, {each.member_id: each.assignment for each in group.members.values()}) == value


@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_recorded_logs_load_as_the_groups_and_offsets_that_apache_kafka_had(manifest: Path) -> None:
    groups, loader = load(*(data for data, _ in golden_segments(manifest)))
    assert loader.skipped == 0
    expected_groups: dict[str, dict[str, Any]] = {}
    expected_offsets: dict[tuple[str, str, int], tuple[int, dict[str, Any]]] = {}
    open_transactions: dict[int, dict[tuple[str, str, int], tuple[int, dict[str, Any]]]] = {}
    for batch, record in golden_records(manifest):
        if batch["control"]:
            found = open_transactions.pop(batch["producer_id"], {})
            if record["control_type"] == "COMMIT":
                expected_offsets |= {k: v for k, v in found.items() if v[0] > expected_offsets.get(k, (-1, {}))[0]}
            continue
        key, value = record["decoded_key"], record.get("decoded_value")
        if key["_message"] == "GroupMetadataKey":
            expected_groups.pop(key["group"], None)
            if value is not None:
                expected_groups[key["group"]] = value
            continue
        offsets = open_transactions.setdefault(batch["producer_id"], {}) if batch["transactional"] else expected_offsets
        where = key["group"], key["topic"], key["partition"]
        offsets.pop(where, None)
        if value is not None:
            offsets[where] = batch["base_offset"], value
    loaded = {
        (group.group_id, *partition): (commit.record_offset, commit.value.offset, commit.value.metadata, commit.value.leader_epoch)
        for group in groups.values()
        for partition in group.offsets.committed
        for commit in [group.offsets.committed[partition]]
    }
    assert loaded == {
        where: (base, value["offset"], value["metadata"], value.get("leaderEpoch", -1)) for where, (base, value) in expected_offsets.items()
    }
    still_open = {where for found in open_transactions.values() for where in found}
    assert still_open == {
        (group.group_id, *partition)
        for group in groups.values()
        for of_producer in group.offsets.transactional.values()
        for partition in of_producer
    }
    assert groups.keys() == expected_groups.keys() | {group for group, _, _ in expected_offsets} | {group for group, _, _ in still_open}
    for group_id, value in expected_groups.items():
        group = groups[group_id]
        assert (group.generation_id, group.protocol_name, group.leader_id) == (value["generation"], value["protocol"], value["leader"])
        assert [member["memberId"] for member in value["members"]] == list(group.members)
        assert group.state is (GroupState.STABLE if value["members"] else GroupState.EMPTY)
        assert group.state_timestamp_ms == value["currentStateTimestamp"]


def test_there_are_recorded_logs() -> None:
    assert len(MANIFESTS) >= 8


def test_a_group_comes_back_with_its_members() -> None:
    driver, ids = a_stable_group(3)
    value = group_value(driver.group, dict.fromkeys(ids, b"part"))
    groups, _ = load(bytes(build_batch([Record(0, 0, group_key("g"), value)])))
    group = groups["g"]
    assert (group.state, group.generation_id, group.protocol_name, list(group.members)) == (GroupState.STABLE, 1, "range", ids)
    member = group.members[ids[1]]
    assert (member.assignment, member.session_timeout_ms, member.rebalance_timeout_ms) == (b"part", 10_000, 60_000)
    assert group.protocol_votes == {"range": 3}


def test_a_tombstone_takes_back_what_was_before() -> None:
    driver, _ = a_stable_group()
    records = [
        Record(0, 0, group_key("g"), group_value(driver.group, dict.fromkeys(driver.group.members, b""))),
        Record(1, 0, offset_key("g", T0), offset_value(OffsetAndMetadata(1, -1, "", 0))),
        Record(2, 0, group_key("g"), None),
    ]
    groups, _ = load(bytes(build_batch(records)))
    assert groups["g"].state is GroupState.EMPTY
    assert not groups["g"].members
    groups, _ = load(bytes(build_batch(records)), bytes(build_batch([Record(3, 0, offset_key("g", T0), None)])))
    assert groups == {}


def transactional(offset: int, producer_id: int, base_offset: int) -> bytes:
    record = Record(base_offset, 0, offset_key("g", T0), offset_value(OffsetAndMetadata(offset, -1, "", 0)))
    return bytes(build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True))


def marker(kind: ControlRecordType, producer_id: int, base_offset: int) -> bytes:
    return bytes(
        build_end_transaction_marker(
            EndTransactionMarker(kind, 0), timestamp=0, producer_id=producer_id, producer_epoch=0, base_offset=base_offset
        )
    )


def test_markers_decide_about_offsets_in_transactions() -> None:
    log = [transactional(1, 7, 0), transactional(2, 8, 1), transactional(3, 9, 2)]
    groups, _ = load(*log)
    assert sorted(groups["g"].offsets.transactional) == [7, 8, 9]
    assert not groups["g"].offsets.committed
    markers = [marker(ControlRecordType.ABORT, 9, 3), marker(ControlRecordType.COMMIT, 8, 4), marker(ControlRecordType.COMMIT, 7, 5)]
    groups, _ = load(*log, *markers)
    assert groups["g"].offsets.committed[T0].value.offset == 2
    assert not groups["g"].offsets.transactional


@pytest.mark.parametrize("version", [0, 1])
def test_a_tombstone_deletes_what_open_transactions_have_written_before_it(version: int) -> None:
    key = version.to_bytes(2, "big") + offset_key("g", T0)[2:]
    log = [transactional(1, 7, 0), bytes(build_batch([Record(1, 0, key, None)])), transactional(3, 8, 2)]
    groups, _ = load(*log)
    assert sorted(groups["g"].offsets.transactional) == [8]
    groups, _ = load(*log, marker(ControlRecordType.COMMIT, 8, 3), marker(ControlRecordType.COMMIT, 7, 4))
    assert groups["g"].offsets.committed[T0].value.offset == 3
    groups, _ = load(*log, marker(ControlRecordType.ABORT, 8, 3), marker(ControlRecordType.COMMIT, 7, 4))
    assert groups == {}


def test_a_marker_of_very_many_headers_takes_little_memory() -> None:
    (written,) = iter_records(marker(ControlRecordType.COMMIT, 7, 1))
    headers = [(b"", None)] * 200_000
    odd = build_batch(
        [written._replace(headers=tuple(headers))], base_offset=1, producer_id=7, producer_epoch=0, is_transactional=True, is_control=True
    )
    log = [transactional(1, 7, 0), bytes(odd)]
    tracemalloc.start()
    try:
        groups, _ = load(*log)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000, "the headers have 400 KB, and take 12 MB as objects"
    finally:
        tracemalloc.stop()
    assert groups["g"].offsets.committed[T0].value.offset == 1


def test_records_of_later_brokers_are_passed_over() -> None:
    groups, loader = load(bytes(build_batch([Record(0, 0, b"\x00\x09later", b"\x00\x00"), Record(1, 0, b"\x7f\xff", None)])))
    assert (groups, loader.skipped) == ({}, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", b"x"),
        (b"\x00\x01\x00\x05g", b"x"),
        (offset_key("bad", T0), b""),
        (offset_key("bad", T0), b"\x00\x09x"),
        (offset_key("bad", T0), b"\x00\x03x"),
        (group_key("bad"), b"\x00\x09"),
        (group_key("bad"), b"\x00\x03\x00\x01"),
        (group_key("g" * 20_000).replace(b"g" * 20_000, b"\xff" * 20_000), bytes(8) + b"\xff" * 4 + bytes(4)),
        (offset_key("g" * 20_000, T0).replace(b"g" * 20_000, b"\xff" * 20_000), offset_value(OffsetAndMetadata(1, -1, "", 0))),
    ],
)
def test_a_record_that_cannot_be_read_is_left_out(key: bytes, value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    good = Record(1, 0, offset_key("good", T0), offset_value(OffsetAndMetadata(1, -1, "", 0)))
    groups, loader = load(bytes(build_batch([Record(0, 0, key, value), good])))
    assert list(groups) == ["good"]
    assert loader.skipped == 1
    assert "left out" in caplog.text


def test_a_record_without_a_key_is_left_out() -> None:
    groups, loader = load(bytes(build_batch([Record(0, 0, None, b"x")])))
    assert (groups, loader.skipped) == ({}, 1)


def test_of_many_records_that_cannot_be_read_the_first_are_named(caplog: pytest.LogCaptureFixture) -> None:
    records = [Record(number, 0, offset_key(f"bad-{number}", T0), b"\x00\x09x") for number in range(10 * NAMED)]
    _, loader = load(bytes(build_batch(records)))
    assert loader.skipped == 10 * NAMED
    assert len(caplog.messages) == NAMED + 1


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=120), st.sampled_from([None, (2, 3), *((kind, 0) for kind in range(3, 18))]))
def test_no_bytes_keep_a_partition_from_loading(key: bytes, value: bytes, versions: tuple[int, int] | None) -> None:
    if versions is not None:
        key = versions[0].to_bytes(2, "big") + key
        value = versions[1].to_bytes(2, "big") + value
    with quiet():
        _, loader = load(bytes(build_batch([Record(0, 0, key, value)])))
    assert loader.skipped <= 1


def test_a_value_of_version_0_has_the_session_timeout_for_both() -> None:
    driver, ids = a_stable_group()
    _, stored = read_group_value(group_value(driver.group, {ids[0]: b""}))
    groups, _ = load(bytes(build_batch([Record(0, 0, group_key("g"), b"\x00\x00" + stored.encode(0))])))
    assert groups["g"].members[ids[0]].rebalance_timeout_ms == 10_000
    assert groups["g"].state_timestamp_ms is None


def test_a_key_says_what_it_is_of() -> None:
    assert read_key(b"\x00\x00" + offset_key("g", T0)[2:]) == read_key(offset_key("g", T0))
