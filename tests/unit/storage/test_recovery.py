"""Opening a log after a crash, whatever the crash left: torn tails, flipped bytes, index files of any kind."""

import logging
import re
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.batch import HEADER_SIZE, iter_batches
from ottla.storage.disk.checkpoint import replace_file
from ottla.storage.disk.file_names import file_name
from ottla.storage.disk.leader_epochs import encode_leader_epochs
from ottla.storage.errors import CorruptCheckpoint, InconsistentTopicId, LogDirFailure
from ottla.storage.log.context import LogContext
from ottla.storage.log.lookups import offset_for_timestamp
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from tests.support.batches import a_batch
from tests.support.clocks import ManualClock
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import LOG_DIR, T0, ManualScheduler, a_config, a_context, a_log, append, follow, read_all

DIRECTORY = f"{LOG_DIR}/topic-0"


def _path(base_offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{file_name(base_offset, suffix)}"


def _on(filesystem: MemoryFileSystem, **arguments: int | bool) -> PartitionLog:
    return a_log(a_context(filesystem), **arguments)


def _written(batches: int = 4, **config: int) -> MemoryFileSystem:
    """The disk of a broker that appended some batches of two records and was killed."""
    filesystem = MemoryFileSystem()
    log = _on(filesystem, **config)
    for n in range(batches):
        append(log, a_batch(2, value_bytes=20, timestamps=[1000 + n, 1000 + n]))
    log.flushes.prepare(log.log_end_offset)  # brings index entries out of memory, as much as a process can have done before it was killed
    return filesystem


def _copy(filesystem: MemoryFileSystem) -> MemoryFileSystem:
    copy = MemoryFileSystem()
    copy.directories = set(filesystem.directories)
    for path in filesystem.nodes:
        copy.open(path, create=True).write(filesystem.read_file(path))
    return copy


def _check_whole(log: PartitionLog) -> None:
    """The log is readable to its end, batch by batch, and its indexes agree with it."""
    data = read_all(log)
    assert sum(header.size for _, header in iter_batches(data)) == len(data) == log.size_bytes
    for segment in log.segments:
        starts = {position: header.last_offset for position, header in iter_batches(segment.file.pread(segment.size, 0))}
        for offset, position in segment.offset_index.all_entries():
            assert starts[position] == offset


@pytest.mark.slow
def test_a_log_cut_at_any_byte_of_its_last_two_batches_keeps_the_whole_ones() -> None:
    filesystem = _written(4)
    size = filesystem.size(_path(0)) // 4
    for length in range(2 * size, 4 * size):
        cut = _copy(filesystem)
        cut.open(_path(0)).truncate(length)
        log = _on(cut, clean=False)
        assert log.log_end_offset == length // size * 2
        assert cut.size(_path(0)) == length // size * size
        _check_whole(log)
        assert append(log).first_offset == length // size * 2


@pytest.mark.slow
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_ends_the_log_before_its_batch(mask: int) -> None:
    filesystem = _written(3)
    size = filesystem.size(_path(0)) // 3
    for position in range(size, 3 * size):
        damaged = _copy(filesystem)
        byte = damaged.read_file(_path(0))[position]
        damaged.open(_path(0)).pwrite(bytes([byte ^ mask]), position)
        log = _on(damaged, clean=False)
        # No CRC covers the leader epoch, nor the base offset, of which only what follows tells.
        believed = position % size in range(12, 16) or position in range(2 * size, 2 * size + 8)
        assert log.log_end_offset == position // size * 2 or believed
        _check_whole(log)


def test_what_is_cut_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = _written(2)
    filesystem.open(_path(0)).truncate(filesystem.size(_path(0)) - 5)
    with caplog.at_level(logging.WARNING, "ottla.storage"):
        _on(filesystem, clean=False)
    [message] = [record.getMessage() for record in caplog.records]
    assert re.search(
        r"topic-0/0{20}\.log: \d+ bytes from byte \d+ on, after offset 1, are torn \(incomplete\); cut, nothing acknow", message
    )


@pytest.mark.parametrize(("clean", "recovery_point", "is_lost"), [(False, 2, False), (False, 3, True), (True, 0, True)])
def test_damage_to_what_was_flushed_is_not_called_the_end_of_a_write(
    clean: bool, recovery_point: int, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    filesystem = _written(2)
    filesystem.open(_path(0)).truncate(filesystem.size(_path(0)) - 5)
    assert _on(filesystem, clean=clean, recovery_point=recovery_point).log_end_offset == 2
    assert ("damaged there is lost" in caplog.text, "nothing acknowledged after a flush is lost" in caplog.text) == (is_lost, not is_lost)


def test_segments_behind_a_cut_are_deleted() -> None:
    filesystem = _written(6, segment_bytes=250)
    assert len([name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".log")]) == 3
    filesystem.open(_path(4)).truncate(100)
    log = _on(filesystem, clean=False)
    assert log.segments.bases == [0, 4]
    assert log.log_end_offset == 4
    assert not filesystem.exists(_path(8))
    assert not filesystem.exists(_path(8, ".index"))
    assert append(log).first_offset == 4


def test_a_recovery_that_is_killed_leaves_no_gap_where_it_cut() -> None:
    filesystem = _written(8, segment_bytes=250)
    filesystem.open(_path(4)).truncate(100)
    failing, is_complete = 0, False
    while not is_complete:
        failing += 1
        disk = _copy(filesystem)
        faulty = FaultyFileSystem(disk)
        faulty.fail_at = failing
        try:
            a_log(a_context(faulty), clean=False)
            is_complete = True
        except LogDirFailure:
            pass
        log = _on(disk, clean=False)
        assert (log.log_end_offset, log.segments.bases) == (4, [0, 4])
        _check_whole(log)


def test_segments_behind_a_cut_are_durably_gone_before_the_next_append() -> None:
    filesystem = _written(6, segment_bytes=250)
    filesystem.open(_path(4)).truncate(100)
    faulty = FaultyFileSystem(filesystem)
    calls: list[tuple[str, str]] = []

    def note(name: str, path: str) -> bool:
        calls.append((name, path))
        return False

    faulty.fails_if = note
    a_log(a_context(faulty), clean=False)
    assert ("sync_directory", DIRECTORY) in calls[calls.index(("unlink", _path(8))) :]


@pytest.mark.parametrize(
    ("left", "missing"), [({4: 1}, "6 to 7"), ({4: 0}, "4 to 7"), ({4: None}, "4 to 7"), ({0: 1, 8: 0}, "2 to 3, 8 to 11")]
)
def test_offsets_that_a_power_cut_left_out_are_named_in_one_line(
    left: dict[int, int | None], missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The segment files end with a whole batch, or are empty or gone. What follows them is kept, as by Apache Kafka."""
    filesystem = _written(8, segment_bytes=250)
    whole = filesystem.size(_path(0)) // 2
    for base_offset, batches in left.items():
        if batches is None:
            filesystem.unlink(_path(base_offset))
        else:
            filesystem.open(_path(base_offset)).truncate(batches * whole)
    for policy, lines in (("compact", 0), ("delete", 1)):
        caplog.clear()
        log = a_log(a_context(_copy(filesystem)), clean=False, cleanup_policy=policy)
        told = [record.getMessage() for record in caplog.records if "are missing between its segments" in record.getMessage()]
        assert len(told) == lines
        assert log.log_end_offset == 16
        assert read_all(log)
    assert told[0].startswith(f"{DIRECTORY}: the offsets {missing} are missing between its segments: a power cut lost them")
    assert not caplog.text.count("torn")


def test_segments_below_the_recovery_point_are_trusted() -> None:
    filesystem = _written(6, segment_bytes=250)
    filesystem.open(_path(0)).pwrite(b"\xff\xff", 80)
    log = _on(filesystem, clean=False, recovery_point=4)
    assert log.log_end_offset == 12
    assert log.recovery_point == 4


def test_after_a_crash_the_recovery_point_stays_and_after_a_clean_stop_it_is_the_end() -> None:
    filesystem = _written(3)
    assert _on(_copy(filesystem), clean=False, recovery_point=2).recovery_point == 2
    assert _on(_copy(filesystem), clean=False, recovery_point=200).recovery_point == 6
    log = _on(filesystem, clean=False)
    log.flush()
    log.close()
    assert _on(filesystem, clean=True, recovery_point=2).recovery_point == 6


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("garbage", [None, b"", b"\x7f" * 64, b"garbage", b"\0" * 64, struct.pack(">iiqi", 2, 10, 9, 1) * 4])
def test_index_files_that_are_missing_or_wrong_are_made_anew(suffix: str, clean: bool, garbage: bytes | None) -> None:
    config = {"segment_bytes": 250, "index_interval_bytes": 1}
    filesystem = MemoryFileSystem()
    log = _on(filesystem, **config)
    for n in range(6):
        append(log, a_batch(2, value_bytes=20, timestamps=[1000 + n, 1000 + n]))
    expected, data = [segment.offset_index.all_entries() for segment in log.segments], read_all(log)
    log.flush()
    log.close()
    for base in log.segments.bases:
        filesystem.unlink(_path(base, suffix))
        if garbage is not None:
            filesystem.open(_path(base, suffix), create=True).write(garbage)
    log = _on(filesystem, clean=clean, **config)
    assert log.log_end_offset == 12
    assert read_all(log, max_bytes=110) == data
    for n in range(6):
        found = offset_for_timestamp(log, 1000 + n)
        assert found is not None
        assert found.offset == 2 * n
        region = log.read(2 * n + 1, 1, 12, True).region
        assert region is not None
        assert next(iter_batches(region.read()))[1].base_offset == 2 * n
    if suffix == ".timeindex" or garbage != b"":  # an empty offset index is right, only slow
        assert [segment.offset_index.all_entries() for segment in log.segments] == expected
    assert append(log).first_offset == 12
    _check_whole(log)


def test_a_power_cut_after_a_clean_stop_makes_no_segment_old() -> None:
    """The last entry of the time index may not have reached the disk, and reads as zeros then."""
    filesystem = MemoryFileSystem()
    log = _on(filesystem)
    append(log, a_batch(2, timestamps=[1000, 1000]))
    log.flush()
    log.close()
    for seed in range(20):
        log = _on(filesystem.after_power_cut(seed))
        assert (log.log_end_offset, log.segments.active.largest_timestamp) == (2, 1000)


def test_the_index_of_another_segment_is_found_out() -> None:
    config = {"index_interval_bytes": 1}
    filesystem, other = MemoryFileSystem(), MemoryFileSystem()
    for disk, size in ((other, 57), (filesystem, 20)):
        log = _on(disk, **config)
        for _ in range(20):
            append(log, a_batch(2, value_bytes=size))
        data = read_all(log)
        log.close()
    filesystem.unlink(_path(0, ".index"))
    filesystem.open(_path(0, ".index"), create=True).write(other.read_file(_path(0, ".index"))[:80])
    log = _on(filesystem, **config)
    assert log.log_end_offset == 40
    assert read_all(log, max_bytes=200) == data
    assert all(log.read(offset, 1, 40, True).region is not None for offset in range(40))


def test_an_index_without_its_log_file_is_deleted() -> None:
    filesystem = _written(1)
    for suffix in (".index", ".timeindex", ".txnindex"):
        filesystem.open(_path(77, suffix), create=True).write(b"x" * 8)
    log = _on(filesystem, clean=False)
    assert log.segments.bases == [0]
    assert not any("77" in name for name in filesystem.list_directory(DIRECTORY))


def test_an_empty_directory_becomes_an_empty_log_at_the_log_start_offset() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory(DIRECTORY)
    log = _on(filesystem, log_start_offset=9)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (9, 9, 9)
    assert append(log).first_offset == 9


def test_a_log_that_ends_below_its_start_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = _written(2)
    with caplog.at_level(logging.WARNING, "ottla.storage"):
        log = _on(filesystem, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.segments.bases == [50]
    assert "below its log start offset 50" in caplog.text


def test_a_tail_that_a_clean_shutdown_cannot_have_left_is_checked() -> None:
    filesystem = _written(2)
    size = filesystem.size(_path(0))
    filesystem.open(_path(0)).pwrite(b"\x01" * 70, size)
    log = _on(filesystem, clean=True)
    assert log.log_end_offset == 4
    assert filesystem.size(_path(0)) == size
    append(log)
    _check_whole(log)


@pytest.mark.parametrize("offset", [2**63 - 2, 2**63 - 1])
@pytest.mark.parametrize("suffix", ["", ".index", ".timeindex"], ids=["indexed", "no offset index", "no time index"])
def test_a_batch_with_offsets_beyond_64_bits_is_damage_after_a_clean_stop_too(offset: int, suffix: str) -> None:
    filesystem = _written(4)
    size = filesystem.size(_path(0)) // 4
    filesystem.open(_path(0)).pwrite(struct.pack(">q", offset), 3 * size)
    if suffix:
        filesystem.unlink(_path(0, suffix))
    log = _on(filesystem, clean=True)
    assert log.log_end_offset == 6
    _check_whole(log)


def test_producers_are_known_again_after_a_crash() -> None:
    filesystem = MemoryFileSystem()
    log = _on(filesystem)
    append(log, a_batch(3, producer_id=5))
    append(log, a_batch(2, producer_id=6, transactional=True))
    log = _on(filesystem, clean=False)
    assert {entry.producer_id: entry.last_sequence for entry in log.active_producers()} == {5: 2, 6: 1}
    log.update_high_watermark(5)
    assert log.last_stable_offset == 3
    assert append(log, a_batch(3, producer_id=5)).is_duplicate


def test_producers_are_known_again_after_a_clean_stop_without_reading_the_log() -> None:
    filesystem = MemoryFileSystem()
    log = _on(filesystem)
    append(log, a_batch(3, producer_id=5))
    log.close()
    assert filesystem.exists(_path(3, ".snapshot"))
    log = _on(filesystem)
    assert append(log, a_batch(3, producer_id=5)).is_duplicate


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("segment", [0, 1, 2])
def test_an_index_that_is_missing_costs_no_producer_and_no_open_transaction(clean: bool, suffix: str, segment: int) -> None:
    filesystem = MemoryFileSystem()
    log = _on(filesystem)
    append(log, a_batch(3, producer_id=5))
    append(log, a_batch(2, producer_id=6, transactional=True))
    for _ in range(3):
        log.roll()
        append(log, a_batch(2))
    log.close()
    filesystem.unlink(_path((0, 5, 7)[segment], suffix))
    log = _on(filesystem, clean=clean, recovery_point=11, log_start_offset=6)
    assert {entry.producer_id: entry.last_sequence for entry in log.active_producers()} == {5: 2, 6: 1}
    log.update_high_watermark(11)
    assert log.last_stable_offset == 6  # of a transaction that began at 3
    assert log.producer_state.snapshot_offsets == [7, 9, 11]


def test_leader_epochs_beyond_what_survived_are_forgotten() -> None:
    filesystem = MemoryFileSystem()
    log = _on(filesystem)
    append(log, epoch=1)
    append(log, epoch=2)
    filesystem.open(_path(0)).truncate(len(a_batch()))
    log = _on(filesystem, clean=False)
    assert log.leader_epochs.entries == [(1, 0)]
    assert log.latest_epoch == 1


def test_leader_epochs_that_were_lost_are_read_from_the_batches() -> None:
    filesystem = MemoryFileSystem()
    log = _on(filesystem)
    append(log, epoch=1)
    append(log, epoch=4)
    filesystem.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
    assert _on(filesystem, clean=False).leader_epochs.entries == [(1, 0), (4, 1)]


@pytest.mark.parametrize(
    ("on_disk", "found"),
    [
        ([(0, 0), (1, 2), (2, 4)], [(0, 0), (1, 2), (2, 4)]),  # those that began them were compacted away
        ([(0, 0), (2, 5)], [(0, 0), (2, 5)]),
        ([(0, 0), (2, 3), (9, 7)], [(0, 0), (2, 3)]),
        ([(0, 0), (2, 1)], [(0, 0), (2, 5)]),  # from before a truncation that the crash undid
        ([(0, 0), (3, 4), (9, 6)], [(0, 0), (2, 5)]),
        ([(3, 0)], [(0, 0), (2, 5)]),
        ([(0, 0)], [(0, 0), (2, 5)]),  # behind
        ([(0, 0), (2, 6)], [(0, 0), (2, 5)]),
        ([], [(0, 0), (2, 5)]),
    ],
)
def test_leader_epochs_that_batches_do_not_contradict_stay(on_disk: list[tuple[int, int]], found: list[tuple[int, int]]) -> None:
    filesystem = MemoryFileSystem()
    log = _on(filesystem)
    for epoch, base_offset, records in ((0, 0, 2), (2, 5, 1), (2, 6, 1)):  # a compacted log: nothing stands at 2, 3 and 4
        batch = a_batch(records)
        struct.pack_into(">q", batch, 0, base_offset)
        struct.pack_into(">i", batch, 12, epoch)
        follow(log, batch, 9)
    replace_file(filesystem, f"{DIRECTORY}/leader-epoch-checkpoint", encode_leader_epochs(on_disk))
    assert _on(filesystem, clean=False).leader_epochs.entries == found


def test_the_topic_id_is_written_once_and_held_against_what_is_expected() -> None:
    filesystem = MemoryFileSystem()
    topic_id = bytes(range(16))
    open_log(a_context(filesystem), T0, LOG_DIR, a_config(), topic_id=topic_id)
    assert filesystem.read_file(f"{DIRECTORY}/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert open_log(a_context(filesystem), T0, LOG_DIR, a_config()).topic_id == topic_id
    with pytest.raises(InconsistentTopicId):
        open_log(a_context(filesystem), T0, LOG_DIR, a_config(), topic_id=bytes(range(1, 17)))
    replace_file(filesystem, f"{DIRECTORY}/partition.metadata", b"version: 7\r\ntopic_id:  AAECAwQFBgcICQoLDA0ODw\r\nof a later release\n")
    assert open_log(a_context(filesystem), T0, LOG_DIR, a_config()).topic_id == topic_id
    an_id = b"topic_id: AAECAwQFBgcICQoLDA0ODw"
    for garbage in (b"version: -1\n" + an_id, b"version: x\n" + an_id, b"version: 0", an_id, b"version: 0\ntopic_id: AAAA", b"\xff"):
        replace_file(filesystem, f"{DIRECTORY}/partition.metadata", garbage)
        with pytest.raises(CorruptCheckpoint, match=r"partition\.metadata"):
            open_log(a_context(filesystem), T0, LOG_DIR, a_config())


def test_a_disk_that_refuses_takes_its_log_directory_down() -> None:
    written = _written(3, segment_bytes=250)
    faulty = FaultyFileSystem(_copy(written))
    context = LogContext(faulty, ManualClock(), ManualScheduler())
    a_log(context, clean=False)
    for failing in range(1, faulty.calls + 1):
        faulty = FaultyFileSystem(_copy(written))
        faulty.fail_at = failing
        context.filesystem = faulty
        with pytest.raises(LogDirFailure, match="Input/output error") as caught:
            a_log(context, clean=False)
        assert caught.value.log_dir == LOG_DIR


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_damage_to_any_file_leaves_a_log_that_opens_and_appends(data: st.DataObject) -> None:
    logging.getLogger("ottla.storage").setLevel(logging.CRITICAL)
    try:
        filesystem = _written(6, segment_bytes=250, index_interval_bytes=1)
        for _ in range(data.draw(st.integers(1, 3))):
            files = [path for path in sorted(filesystem.nodes) if path.endswith((".log", ".index", ".timeindex", ".snapshot"))]
            path = data.draw(st.sampled_from(files))
            size = filesystem.size(path)
            if data.draw(st.booleans()):
                filesystem.open(path).truncate(data.draw(st.integers(0, size + 30)))
            else:
                junk = data.draw(st.binary(min_size=1, max_size=HEADER_SIZE))
                filesystem.open(path).pwrite(junk, data.draw(st.integers(0, size)))
        log = _on(filesystem, clean=False, segment_bytes=250, index_interval_bytes=1)
        _check_whole(log)
        end = log.log_end_offset
        assert append(log).first_offset == end
        log.flush()
        log.close()
        again = _on(filesystem, segment_bytes=250, index_interval_bytes=1)
        assert again.log_end_offset == end + 1
        _check_whole(again)
    finally:
        logging.getLogger("ottla.storage").setLevel(logging.NOTSET)
