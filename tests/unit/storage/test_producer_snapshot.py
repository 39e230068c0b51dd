"""Snapshot files of producer state: Kafka's bytes, and which of them a start uses and keeps."""

import json
import struct
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.errors import CorruptSnapshot
from ottla.storage.log.flushes import SEGMENTS_AT_ONCE
from ottla.storage.producers.snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.state import ProducerStateEntry
from ottla.storage.producers.state_manager import ProducerStateManager, snapshot_offsets
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.golden_logs import LOGS
from tests.support.logs import a_context, a_log, append

PARTITION = TopicPartition("topic", 0)
DAY_MS = 86_400_000
GOLDEN_SNAPSHOTS = sorted(LOGS.glob("*/*/*.snapshot"))


def a_manager(filesystem: MemoryFileSystem | None = None) -> ProducerStateManager:
    filesystem = filesystem or MemoryFileSystem()
    filesystem.make_directory("/data/topic-0")
    return ProducerStateManager(
        PARTITION, "/data/topic-0", DAY_MS, filesystem, snapshot_offsets(filesystem.list_directory("/data/topic-0"))
    )


def write(manager: ProducerStateManager, offset: int, producer_id: int = 7, *, transactional: bool = False) -> None:
    """One record at `offset`, and the state that covers it."""
    manager.state.on_append(producer_id, 0, offset, offset, last_offset=offset, timestamp=1000, is_transactional=transactional)
    manager.map_end_offset = offset + 1


def manifest_of(path: Path) -> dict[str, object]:
    partition = path.parent
    found: dict[str, object] = json.loads((partition.parent / f"{partition.name}.json").read_text())["files"][path.name]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", GOLDEN_SNAPSHOTS, ids=lambda path: f"{path.parts[-3]}/{path.parts[-2]}/{path.name}")
def test_a_recorded_snapshot_is_read_as_its_manifest_says_and_written_again_to_the_same_bytes(path: Path) -> None:
    data = path.read_bytes()
    entries = decode_snapshot(data, str(path))
    described = [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_data_offset,
            "offset_delta": entry.last_offset_delta,
            "timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.current_txn_first_offset,
        }
        for entry in entries
    ]
    assert described == manifest_of(path)["producers"]
    assert encode_snapshot(entries) == data


longs = st.integers(0, 2**63 - 1)
ints = st.integers(0, 2**31 - 1)


@st.composite
def entries(draw: st.DrawFn) -> ProducerStateEntry:
    entry = ProducerStateEntry(
        draw(longs),
        draw(st.integers(-1, 2**15 - 1)),
        draw(st.integers(-1, 2**31 - 1)),
        draw(st.integers(-1, 2**63 - 1)),
        draw(st.one_of(st.just(-1), longs)),
    )
    if draw(st.booleans()):
        entry.batches.append((draw(ints), draw(longs), draw(ints), entry.last_timestamp))
    return entry


@settings(max_examples=100, deadline=None)
@given(st.lists(entries(), max_size=5))
def test_what_is_written_is_read_again(written: list[ProducerStateEntry]) -> None:
    assert list(map(repr, decode_snapshot(encode_snapshot(written), "f"))) == list(map(repr, written))


@settings(max_examples=100, deadline=None)
@given(st.lists(entries(), min_size=1, max_size=3), st.data())
def test_any_damage_is_noticed(written: list[ProducerStateEntry], data: st.DataObject) -> None:
    damaged = bytearray(encode_snapshot(written))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    else:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptSnapshot, match=r"^/data/1\.snapshot: "):
        decode_snapshot(bytes(damaged), "/data/1.snapshot")


@pytest.mark.parametrize("count", [-1, 1, 2**31 - 1])
def test_a_count_that_does_not_fit_is_no_reason_to_allocate(count: int) -> None:
    body = struct.pack(">i", count)
    with pytest.raises(CorruptSnapshot, match="do not fit"):
        decode_snapshot(struct.pack(">hI", 1, crc32c.crc32c(body)) + body, "f")


def test_a_start_loads_the_newest_snapshot_within_the_log() -> None:
    filesystem = MemoryFileSystem()
    manager = a_manager(filesystem)
    for offset in (0, 1, 2):
        write(manager, offset)
        manager.take_snapshot()
    again = a_manager(filesystem)
    again.truncate_and_reload(0, 2, 1000)
    assert again.snapshot_offsets == [1, 2]
    assert again.map_end_offset == 2
    assert again.state.producers[7].last_data_offset == 1


def test_a_corrupt_snapshot_is_deleted_and_the_one_before_is_used(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = MemoryFileSystem()
    manager = a_manager(filesystem)
    for offset in (0, 1):
        write(manager, offset)
        manager.take_snapshot()
    filesystem.open(manager.snapshot_path(2)).write(b"\0\1garbage")
    again = a_manager(filesystem)
    again.truncate_and_reload(0, 2, 1000)
    assert again.map_end_offset == 1
    assert not filesystem.exists(manager.snapshot_path(2))
    assert "00000000000000000002.snapshot" in caplog.text


def test_without_a_snapshot_everything_is_replayed_from_the_log_start() -> None:
    manager = a_manager()
    manager.truncate_and_reload(5, 9, 1000)
    assert manager.map_end_offset == 5
    assert manager.state.is_empty


def test_expired_producers_are_not_loaded() -> None:
    filesystem = MemoryFileSystem()
    manager = a_manager(filesystem)
    write(manager, 0, 1)
    write(manager, 1, 2, transactional=True)
    manager.take_snapshot()
    again = a_manager(filesystem)
    again.truncate_and_reload(0, 2, 1000 + DAY_MS)
    assert list(again.state.producers) == [2]
    assert again.state.first_unstable_offset == 1


def test_a_state_that_ends_where_the_log_does_stays() -> None:
    manager = a_manager()
    write(manager, 4)
    manager.truncate_and_reload(0, 5, 1000)
    assert list(manager.state.producers) == [7]


def test_a_snapshot_is_taken_once_per_offset() -> None:
    manager = a_manager()
    assert manager.take_snapshot() is None
    write(manager, 4)
    assert manager.take_snapshot() == "/data/topic-0/00000000000000000005.snapshot"
    assert manager.take_snapshot() is None


def test_a_snapshot_replaces_a_longer_one_of_the_same_offset() -> None:
    filesystem = MemoryFileSystem()
    manager = a_manager(filesystem)
    filesystem.open(manager.snapshot_path(1), create=True).write(bytes(500))
    write(manager, 0)
    path = manager.take_snapshot(sync=False)
    assert path is not None
    assert decode_snapshot(filesystem.read_file(path), path)[0].producer_id == 7


# (segments, snapshots before, snapshots after)
STRAYS = [
    pytest.param([0, 10], [0, 10, 15], [0, 10, 15], id="the newest is of a clean stop"),
    pytest.param([0, 10], [3, 10], [10], id="without a segment"),
    pytest.param([0, 10], [12, 15], [15], id="only the newest beyond all segments"),
    pytest.param([0, 10], [3], [], id="below the last segment"),
    pytest.param([], [3, 4], [4], id="without any segment"),
    pytest.param([0], [], [], id="none"),
]


@pytest.mark.parametrize(("segments", "before", "after"), STRAYS)
def test_snapshots_without_a_segment_are_removed(segments: list[int], before: list[int], after: list[int]) -> None:
    filesystem = MemoryFileSystem()
    for offset in before:
        filesystem.open(a_manager(filesystem).snapshot_path(offset), create=True)
    manager = a_manager(filesystem)
    manager.remove_stray_snapshots(segments)
    assert manager.snapshot_offsets == after
    assert filesystem.list_directory("/data/topic-0") == [f"{offset:020d}.snapshot" for offset in after]


def test_a_snapshot_that_is_given_out_of_hand_is_forgotten_but_not_deleted() -> None:
    filesystem = MemoryFileSystem()
    manager = a_manager(filesystem)
    for offset in (0, 1, 2):
        write(manager, offset)
        manager.take_snapshot()
    assert manager.forget_snapshot(3) == manager.snapshot_path(3)
    assert manager.forget_snapshot(3) is None
    assert (manager.snapshot_offsets, manager.latest_snapshot_offset) == ([1, 2], 2)
    assert filesystem.exists(manager.snapshot_path(3))
    manager.truncate_fully_and_start_at(20)
    assert (manager.snapshot_offsets, manager.map_end_offset) == ([], 20)


def test_a_moved_log_start_makes_markers_below_it_stable() -> None:
    manager = a_manager()
    write(manager, 0, transactional=True)
    completed = manager.state.on_marker(7, 0, 0, 1, timestamp=1, is_aborted=False)
    assert completed is not None
    manager.state.complete(completed)
    manager.on_log_start_offset_incremented(2)
    assert (manager.state.first_unstable_offset, manager.map_end_offset) == (-1, 2)
    assert manager.take_snapshot() is None


def test_a_snapshot_that_cannot_be_written_is_taken_again_next_time() -> None:
    inner = MemoryFileSystem()
    inner.make_directory("/data/topic-0")
    filesystem = FaultyFileSystem(inner)
    manager = ProducerStateManager(PARTITION, "/data/topic-0", DAY_MS, filesystem, ())
    write(manager, 0)
    filesystem.fail_at, filesystem.fails_for_ever = filesystem.calls + 2, False
    with pytest.raises(OSError, match="Input/output"):
        manager.take_snapshot()
    path = manager.take_snapshot()
    assert path is not None
    assert decode_snapshot(inner.read_file(path), path)[0].producer_id == 7


def test_a_flush_syncs_the_snapshot_with_which_a_recovery_would_begin() -> None:
    """A flush of some of many segments, and not the newest snapshot."""
    filesystem = MemoryFileSystem()
    log = a_log(a_context(filesystem), segment_bytes=len(a_batch(1, producer_id=7)))
    for sequence in range(SEGMENTS_AT_ONCE + 5):
        append(log, a_batch(1, producer_id=7, base_sequence=sequence))
    up_to = log.flushes.complete_up_to()
    plan = log.flushes.prepare(up_to)
    assert plan is not None
    plan.run()
    node = filesystem.nodes[log.producer_state.snapshot_path(up_to)]
    assert node.durable == node.data != b""
