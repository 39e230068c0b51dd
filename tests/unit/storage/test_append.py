"""One append for leaders and followers: however batches come to a log, they leave the same files, offsets and producers."""

import errno

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.protocol.records.batch import HEADER_SIZE, iter_batches
from ottla.storage.errors import CorruptRecord, LogDirFailure, OutOfOrderSequence, RecordBatchTooLarge, StorageError
from ottla.storage.log.context import LogContext
from ottla.storage.log.origins import CLIENT
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segment.segment import NEVER
from ottla.storage.validation.batch import read_only_batch
from ottla.storage.validation.run import BatchRun
from tests.support.batches import FIRST_TIMESTAMP, a_batch, with_bytes
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import ManualScheduler, a_context, a_log, append, follow, read_all

NOW_MS = FIRST_TIMESTAMP + 1000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CONFIGS: list[dict[str, str | int]] = [
    {},
    {"segment_bytes": 400, "index_interval_bytes": 0},
    {"segment_bytes": 900, "index_interval_bytes": 100},
    {"segment_ms": 50, "index_interval_bytes": 100},
    {"segment_index_bytes": 48, "index_interval_bytes": 0},
    {"flush_messages": 3},
    {"cleanup_policy": "compact"},
    {"message_timestamp_type": "LogAppendTime", "index_interval_bytes": 0},
    {"compression_type": "lz4"},
]


def led(**config: str | int) -> PartitionLog:
    """A log that is led in epoch 0."""
    log = a_log(**config)
    log.on_new_leader_epoch(0)
    return log


def contents(log: PartitionLog) -> dict[str, bytes]:
    """All its files, closed, without those that a leader change leaves."""
    log.close()
    filesystem = log.context.filesystem
    return {name: filesystem.read_file(f"{log.directory}/{name}") for name in filesystem.list_directory(log.directory)}


def known_producers(log: PartitionLog) -> list[tuple[object, ...]]:
    return [
        (each.producer_id, each.producer_epoch, each.last_timestamp, each.current_txn_first_offset, each.batches)
        for each in log.active_producers()
    ]


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    """What a client may send: mostly sound, of a few producers, sometimes with some bytes changed."""
    count = draw(st.sampled_from([1, 1, 2, 4, 5, 9]))
    times = draw(st.lists(st.integers(FIRST_TIMESTAMP - 100, FIRST_TIMESTAMP + 2000), min_size=count, max_size=count))
    batch = a_batch(
        count,
        draw(st.sampled_from(CODECS)),
        base_offset=draw(st.sampled_from([0] * 9 + [1])),
        timestamps=times,
        producer_id=draw(st.sampled_from([-1, -1, 7, 8])),
        producer_epoch=draw(st.sampled_from([0, 0, 1])),
        base_sequence=draw(st.sampled_from([0, 0, 1, 2, 5, -1])),
        transactional=draw(st.sampled_from([False] * 4 + [True])),
    )
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, min(HEADER_SIZE + 8, len(batch) - 1)))
        changed = bytes([draw(st.integers(0, 255))])
        if draw(st.booleans()):
            return with_bytes(batch, at, changed)
        batch[at : at + 1] = changed
    return batch


def in_pieces(data: bytes, cuts: set[int]) -> list[bytes]:
    """The batches of `data`, cut behind those with these numbers."""
    pieces = [b""]
    for number, (position, header) in enumerate(iter_batches(data)):
        pieces[-1] += data[position : position + header.size]
        if number in cuts:
            pieces.append(b"")
    return [piece for piece in pieces if piece]


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@example(config={"segment_ms": 50}, sent=[(a_batch(1, timestamps=[-5]), 0), (a_batch(1), 0)], cuts=set())
@given(
    config=st.sampled_from(CONFIGS),
    sent=st.lists(st.tuples(batches(), st.sampled_from([0, 0, 0, 1])), max_size=14),
    cuts=st.sets(st.integers(0, 13)),
)
def test_any_split_into_runs_leaves_the_files_offsets_and_producers_of_the_leader(
    config: dict[str, str | int], sent: list[tuple[bytearray, int]], cuts: set[int]
) -> None:
    leader = led(**config)
    epoch = 0
    for batch, later in sent:
        epoch += later
        end_offset = leader.log_end_offset
        try:
            run = append(leader, batch, epoch=epoch, now_ms=NOW_MS)
        except StorageError:
            assert leader.log_end_offset == end_offset
        else:
            assert run.is_duplicate or leader.log_end_offset == run.last_offset + 1 > run.first_offset == end_offset
    data = read_all(leader)
    followers = []
    for pieces in (in_pieces(data, set()), in_pieces(data, cuts), in_pieces(data, set(range(99)))):
        log = a_log(**config)
        for piece in pieces:
            # The clock counts where the first timestamp of a segment is negative: its age is then that of the file.
            run = follow(log, piece, epoch, now_ms=NOW_MS)
            assert log.log_end_offset == run.last_offset + 1
        followers.append(log)
    for log in followers:
        assert log.log_end_offset == leader.log_end_offset
        assert log.segments.bases == leader.segments.bases
        assert known_producers(log) == known_producers(leader)
        # An epoch in which the leader wrote nothing is not in its batches.
        assert set(log.leader_epochs.entries) <= set(leader.leader_epochs.entries)
    found = [contents(log) for log in (leader, *followers)]
    for files in found:
        files.pop("leader-epoch-checkpoint", None)
    assert all(files == found[0] for files in found)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(sent=st.lists(batches(), max_size=12), config=st.sampled_from(CONFIGS))
def test_a_batch_is_appended_or_refused_whatever_stands_around_it_in_the_frame(sent: list[bytearray], config: dict[str, str | int]) -> None:
    alone, in_frame = led(**config), led(**config)
    outcomes: list[list[object]] = [[], []]
    for batch in sent:
        for number, (log, before, behind) in enumerate(((alone, b"", b""), (in_frame, b"\xff" * 7, bytes(a_batch(3))))):
            run = BatchRun(memoryview(bytearray(before + batch + behind)))
            run.point_at(len(before), len(before) + len(batch))
            try:
                read_only_batch(run, 11)
                log.append(run, 0, NOW_MS, CLIENT)
                outcomes[number].append((run.first_offset, run.last_offset, run.needs_worker))
            except StorageError as error:
                outcomes[number].append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    assert contents(alone) == contents(in_frame)


# -- runs that meet the end of a segment


def test_a_run_is_one_write_for_each_segment_that_it_goes_to() -> None:
    filesystem = FaultyFileSystem(MemoryFileSystem())
    size = len(a_batch(1))
    log = a_log(a_context(filesystem), segment_bytes=4 * size)
    written: list[str] = []

    def note(name: str, path: str) -> bool:
        if name == "pwrite" and path.endswith(".log"):
            written.append(path.rpartition("/")[2])
        return False

    filesystem.fails_if = note
    follow(log, b"".join(a_batch(1, base_offset=at) for at in range(10)), 0)
    assert [int(name.removesuffix(".log")) for name in written] == [0, 4, 8]
    assert log.segments.bases == [0, 4, 8]
    assert log.log_end_offset == 10


def test_a_run_larger_than_a_segment_is_taken_but_no_batch_that_is() -> None:
    log = a_log(segment_bytes=200)
    follow(log, a_batch(1) + a_batch(1, base_offset=1) + a_batch(1, base_offset=2) + a_batch(1, base_offset=3), 0)
    assert log.log_end_offset == 4
    with pytest.raises(RecordBatchTooLarge):
        follow(log, a_batch(1, base_offset=4) + a_batch(1, base_offset=5, value_bytes=300), 0)
    assert log.log_end_offset == 4


def test_a_damaged_batch_behind_the_end_of_a_segment_leaves_the_log_as_it_was() -> None:
    log = a_log(segment_bytes=200)
    bad = a_batch(1, base_offset=3)
    bad[-1] ^= 1
    with pytest.raises(CorruptRecord):
        follow(log, a_batch(1) + a_batch(1, base_offset=1) + a_batch(1, base_offset=2) + bad, 0)
    assert (log.log_end_offset, log.segments.bases) == (0, [0])


def test_producers_of_a_snapshot_are_those_before_the_roll() -> None:
    size = len(a_batch(1))
    log = a_log(segment_bytes=2 * size)
    run = b"".join(a_batch(1, base_offset=at, producer_id=7, base_sequence=at) for at in range(3))
    follow(log, run, 0)
    log.rolls.finish()
    again = a_log(log.context, segment_bytes=2 * size, clean=False)
    assert again.active_producers()[0].last_sequence == 2
    log.truncations.truncate_to(2)
    assert log.active_producers()[0].last_sequence == 1


# -- sequences


def test_sequences_wrap() -> None:
    log = led()
    for sequence, offset in ((2**31 - 4, 0), (2**31 - 2, 2), (0, 4), (2, 6)):
        assert append(log, a_batch(2, producer_id=7, base_sequence=sequence)).first_offset == offset
    assert append(log, a_batch(2, producer_id=7, base_sequence=0)).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        append(log, a_batch(2, producer_id=7, base_sequence=5))
    assert log.log_end_offset == 8


# -- the disk


@pytest.mark.parametrize("fails", ["pwrite", "write_out"])
def test_a_disk_that_refuses_leaves_the_log_as_it_was(fails: str) -> None:
    faulty = FaultyFileSystem(MemoryFileSystem())
    log = a_log(LogContext(faulty, ManualClock(), ManualScheduler()), index_interval_bytes=0)
    follow(log, a_batch(producer_id=7), 0)
    segment = log.segments.active

    def state() -> tuple[object, ...]:
        offsets, times = segment.offset_index, segment.time_index
        return (
            segment.size, segment.bytes_since_last_index_entry, segment.max_timestamp,
            offsets.entries, offsets.last_offset, times.entries, times.last_entry,
        )  # fmt: skip

    before = state()
    faulty.error_number = errno.ENOSPC
    if fails == "pwrite":
        faulty.fails_if = lambda name, path: name == "pwrite" and path.endswith(".log")
    else:
        segment.offset_index._tail += bytes(4096 - 8)  # the next entry goes to the disk
        faulty.fails_if = lambda name, path: name == "pwrite" and path.endswith(".index")
    with pytest.raises(LogDirFailure):
        follow(log, b"".join(a_batch(1, base_offset=at, producer_id=7, base_sequence=at) for at in (1, 2, 3)), 0)
    assert log.log_end_offset == 1
    assert log.producer_state.state.producers[7].batches[-1][0] == 0
    assert state() == before
    assert faulty.size(segment.path) == segment.size


# -- flush.messages


def test_what_was_appended_is_due_to_be_flushed() -> None:
    log = led(flush_messages=2)
    append(log)
    assert log.flushes.due_offset == 0
    append(log)
    assert log.flushes.due_offset == 2
    append(log, a_batch(5))
    assert log.flushes.due_offset == 7


@pytest.mark.parametrize("recovery_point", [0, 3])
def test_limits_that_are_never_reached_may_be_as_large_as_any_offset(recovery_point: int) -> None:
    context = a_context()
    log = a_log(context)
    follow(log, a_batch(3), 0)
    log.close()
    log = a_log(context, recovery_point=recovery_point, segment_ms=NEVER, flush_messages=NEVER)
    for offset in (3, 4):
        assert append(log).first_offset == offset
    assert log.flushes.due_offset == 0
    log.flush()
    append(log)
    assert log.flushes.due_offset == 0
