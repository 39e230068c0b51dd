"""A log whose older records are in the remote store only moves to another log directory with its local part."""

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager.log_manager import LogManager
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.storage.remote.lineage import OffsetAndEpoch
from ottla.storage.remote.tier import OTHER_LOG
from tests.support.batches import a_batch
from tests.support.log_manager import Disks, a_future_log
from tests.support.logs import append, read_all

T0 = TopicPartition("topic", 0)
LOCAL_START = 6


def a_tiered_log(disks: Disks) -> tuple[LogManager, PartitionLog]:
    """A log in /a of ten records in segments of two, in the leader epochs 0 and 4; the first three segments are only remote."""
    disks.topics["topic"] = {"remote.storage.enable": "true", "segment.bytes": str(2 * len(a_batch()))}
    manager = disks.start(remote_log_storage_system_enable="true")
    log = manager.get_or_create(T0, bytes(range(16)), is_new=True, log_dir="/a")
    for offset in range(10):
        append(log, a_batch(producer_id=7) if offset == 2 else a_batch(), epoch=0 if offset < 3 else 4)
    log.update_high_watermark(10)
    log.increment_log_start_offset(1, "test")
    assert log.tier is not None
    log.tier.copied = OffsetAndEpoch(7, 4)
    log.delete_old_segments(
        lambda segment, following: following is not None and following.base_offset <= LOCAL_START, "test", keeps_log_start=True
    )
    return manager, log


def test_the_new_log_begins_with_the_local_part_and_knows_the_rest() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager, log = a_tiered_log(disks)
    before = read_all(log, LOCAL_START)
    tier = log.tier
    a_future_log(manager, log, "/b")
    manager.moves.start(T0)
    disks.background.advance(50)
    moved = manager.get(T0)
    assert moved is not None
    assert moved.log_dir == "/b"
    assert (moved.log_start_offset, moved.local_log_start_offset, moved.log_end_offset) == (1, LOCAL_START, 10)
    assert moved.leader_epochs.entries == [(0, 1), (4, 3)]
    assert moved.tier is tier
    assert read_all(moved, LOCAL_START) == before


@pytest.mark.parametrize("is_other", [True, False])
def test_the_file_that_says_that_the_copies_are_of_a_lost_log_moves_along(is_other: bool) -> None:
    disks = Disks(log_dirs="/a,/b")
    manager, log = a_tiered_log(disks)
    if is_other:
        log.files.small_files.replace(OTHER_LOG, b"4 10\n")
    a_future_log(manager, log, "/b")
    manager.moves.start(T0)
    disks.background.advance(50)
    moved = manager.get(T0)
    assert moved is not None
    assert moved.log_dir == "/b"
    path = f"{moved.directory}/{OTHER_LOG}"
    filesystem = moved.context.filesystem
    assert (filesystem.read_file(path) if filesystem.exists(path) else b"") == (b"4 10\n" if is_other else b"")


def test_records_that_become_remote_during_a_move_are_not_copied_any_more() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager, log = a_tiered_log(disks)
    future = a_future_log(manager, log, "/b")
    manager.moves.start(T0)
    log.delete_old_segments(lambda segment, following: following is not None and following.base_offset <= 8, "test", keeps_log_start=True)
    disks.background.advance(50)
    moved = manager.get(T0)
    assert moved is future
    assert (moved.log_start_offset, moved.log_end_offset) == (1, 10)
    assert moved.leader_epochs.entries == [(0, 1), (4, 3)]
    assert read_all(moved, 8) == read_all(log, 8)


def test_producers_whose_last_batches_are_remote_only_stay_known() -> None:
    disks = Disks(log_dirs="/a,/b")
    manager, log = a_tiered_log(disks)
    producers = log.producer_state.state.producers
    assert 7 in producers
    a_future_log(manager, log, "/b")
    manager.moves.start(T0)
    disks.background.advance(50)
    moved = manager.get(T0)
    assert moved is not None
    assert moved.log_dir == "/b"
    assert moved.producer_state.state.producers.keys() == producers.keys()
    snapshot = moved.context.filesystem.read_file(moved.producer_state.snapshot_path(LOCAL_START))
    assert [each.producer_id for each in decode_snapshot(snapshot, "its snapshot")] == [7]
