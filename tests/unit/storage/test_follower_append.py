"""What a follower writes as its leader has it: many batches at once, with the leader's offsets and epochs."""

from ottla.storage.disk.leader_epochs import UNDEFINED_EPOCH
from ottla.storage.log.partition_log import PartitionLog
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import a_context, a_log, append, follow, read_all
from tests.support.odd_batches import a_body, framed


def writes_of(log: PartitionLog, filesystem: FaultyFileSystem, records: bytes) -> list[str]:
    """The calls that an append of `records` makes."""
    calls: list[str] = []

    def note(name: str, path: str) -> bool:
        calls.append(name)
        return False

    filesystem.fails_if = note
    follow(log, records, 9)
    return calls


def test_many_batches_are_one_write() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    log = a_log(a_context(filesystem))
    records = b"".join(bytes(a_batch(2, base_offset=at * 2)) for at in range(64))
    assert writes_of(log, filesystem, records) == ["pwrite"]
    assert log.log_end_offset == 128
    assert read_all(log) == records


def test_the_epochs_of_one_append_begin_where_their_batches_do() -> None:
    log = a_log()
    epochs = [0, 0, 3, 3, 4]
    records = b"".join(bytes(a_batch(2, base_offset=at * 2, leader_epoch=epoch)) for at, epoch in enumerate(epochs))
    follow(log, records, 7)
    assert log.leader_epochs.entries == [(0, 0), (3, 4), (4, 8)]
    assert log.latest_epoch == 4


def test_batches_without_an_epoch_leave_the_epochs_alone() -> None:
    log = a_log()
    follow(log, a_batch(1, leader_epoch=2), 2)
    follow(log, a_batch(1, base_offset=1, leader_epoch=UNDEFINED_EPOCH), 2)
    assert log.leader_epochs.entries == [(2, 0)]


def test_malformed_records_are_taken_as_the_leader_has_them() -> None:
    """No client can write them now, but a leader may have them of an earlier version."""
    log = a_log()
    bodies = ((a_body(9), 0), (b"", 1), (b"", 3), (b"garbage", 4))
    records = b"".join(framed(body, codec, base_offset=10 * at, leader_epoch=0) for at, (body, codec) in enumerate(bodies))
    follow(log, records, 0)
    assert log.log_end_offset == 10 * len(bodies)
    assert read_all(log) == records


def test_producers_are_known_as_at_the_leader_after_a_cut_and_another_history() -> None:
    leader, follower = a_log(), a_log()
    for sequence in range(4):
        append(leader, a_batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence))
    follow(follower, read_all(leader), 0)
    leader.truncations.truncate_to(2)
    follower.truncations.truncate_to(2)
    assert follower.active_producers()[0].last_sequence == 1
    append(leader, a_batch(1, producer_id=7, producer_epoch=1, base_sequence=0), epoch=1)
    follow(follower, read_all(leader, 2), 1)
    ours, theirs = follower.active_producers()[0], leader.active_producers()[0]
    assert (ours.producer_epoch, ours.last_sequence) == (theirs.producer_epoch, theirs.last_sequence) == (1, 0)
    assert follower.leader_epochs.entries == leader.leader_epochs.entries == [(0, 0), (1, 2)]


def test_a_log_that_begins_anew_takes_the_leaders_offsets_from_there() -> None:
    log = a_log()
    follow(log, a_batch(3, producer_id=7, producer_epoch=0, base_sequence=0), 0)
    log.update_high_watermark(3)
    log.truncations.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
    assert log.active_producers() == []
    follow(log, a_batch(2, base_offset=100, leader_epoch=5), 5)
    assert not log.update_high_watermark(40), "the leader's may still be lower"
    assert log.update_high_watermark(400)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 102, 102)
    assert log.leader_epochs.entries == [(5, 100)]
    assert log.increment_log_start_offset(101, "the leader's moved")
