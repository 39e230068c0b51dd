"""A segment whose offsets do not fit its indexes is split when its log is opened, whatever interrupts that."""

import pytest

from ottla.storage.disk.file_names import LOG_SUFFIX, file_name
from ottla.storage.errors import LogDirFailure, SegmentOffsetOverflow
from ottla.storage.log.context import LogContext
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from tests.support.batches import a_batch
from tests.support.cleaners import clean_log
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import LOG_DIR, T0, a_config, a_context, a_log, append, read_all

FAR = 2**31
OFFSETS = [3, 10, FAR + 2, FAR + 9, FAR + 20, 2 * FAR + 40]
NEXT = 2 * FAR + 50


def an_overflowed_log() -> tuple[MemoryFileSystem, bytes]:
    """A directory as an old version of Apache Kafka could leave it, and the batches in it."""
    filesystem = MemoryFileSystem()
    filesystem.make_directory("/data/topic-0")
    batches = b"".join(bytes(a_batch(2, base_offset=offset, leader_epoch=1)) for offset in OFFSETS)
    following = bytes(a_batch(2, base_offset=NEXT, leader_epoch=1))
    filesystem.open(f"/data/topic-0/{file_name(0, LOG_SUFFIX)}", create=True).write(batches)
    filesystem.open(f"/data/topic-0/{file_name(NEXT, LOG_SUFFIX)}", create=True).write(following)
    return filesystem, batches + following


def reopened(context: LogContext) -> PartitionLog:
    return a_log(context, clean=False)


def check(log: PartitionLog, batches: bytes) -> None:
    assert read_all(log) == batches
    assert log.log_end_offset == NEXT + 2
    assert log.segments.bases == [0, FAR + 2, 2 * FAR + 40, NEXT]
    for offset in OFFSETS:
        region = log.read(offset, 1, log.log_end_offset, True).region
        assert region is not None
        assert region.read() == bytes(a_batch(2, base_offset=offset, leader_epoch=1))


def test_the_segment_is_split_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    filesystem, batches = an_overflowed_log()
    log = reopened(a_context(filesystem))
    check(log, batches)
    assert "split into segments" in caplog.text
    append(log, epoch=1)
    assert log.log_end_offset == NEXT + 3
    names = filesystem.list_directory("/data/topic-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_an_offset_behind_the_next_segment_is_damage() -> None:
    filesystem, batches = an_overflowed_log()
    filesystem.unlink(f"/data/topic-0/{file_name(NEXT, LOG_SUFFIX)}")
    log = reopened(a_context(filesystem))
    assert log.log_end_offset == OFFSETS[1] + 2
    assert batches.startswith(read_all(log))


@pytest.mark.slow
def test_a_crash_at_any_step_leaves_a_log_that_opens_whole() -> None:
    steps = 0
    while True:
        filesystem, batches = an_overflowed_log()
        faulty = FaultyFileSystem(filesystem)
        faulty.fail_at = steps + 1
        try:
            check(reopened(a_context(faulty)), batches)
        except LogDirFailure:
            steps += 1
            check(reopened(a_context(filesystem)), batches)
            continue
        break
    assert steps > 20


FIRST = 3
"""Where Apache Kafka begins the first part: with the first batch."""
PARTS = {FIRST: OFFSETS[:2], FAR + 2: OFFSETS[2:5], 2 * FAR + 40: OFFSETS[5:]}


def split_by_apache_kafka(suffix: str = "") -> tuple[MemoryFileSystem, bytes]:
    """The directory in the midst of its splitting: the parts are there, and the old segment still is."""
    filesystem, batches = an_overflowed_log()
    for base_offset, offsets in PARTS.items():
        part = b"".join(bytes(a_batch(2, base_offset=offset, leader_epoch=1)) for offset in offsets)
        filesystem.open(f"/data/topic-0/{file_name(base_offset, LOG_SUFFIX)}{suffix}", create=True).write(part)
    return filesystem, batches


@pytest.mark.parametrize("suffix", ["", ".swap", ".cleaned"])
def test_what_apache_kafka_had_split_when_it_was_killed_loses_nothing(suffix: str) -> None:
    filesystem, batches = split_by_apache_kafka(suffix)
    log = reopened(a_context(filesystem))
    assert read_all(log) == batches
    assert log.log_end_offset == NEXT + 2
    assert log.segments.bases == [0 if suffix == ".cleaned" else FIRST, FAR + 2, 2 * FAR + 40, NEXT]
    names = filesystem.list_directory("/data/topic-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


def indexed(filesystem: MemoryFileSystem) -> MemoryFileSystem:
    """With indexes, if empty ones, without which a start looks at all of a segment."""
    for name in filesystem.list_directory("/data/topic-0"):
        stem, _, suffix = name.partition(".log")
        for index in (".index", ".timeindex"):
            if stem != name:
                filesystem.open(f"/data/topic-0/{stem}{index}{suffix}", create=True)
    return filesystem


def reopened_when_flushed(filesystem: MemoryFileSystem, *, clean: bool) -> PartitionLog:
    return open_log(a_context(filesystem), T0, LOG_DIR, a_config(), clean_shutdown=clean, recovery_point=NEXT)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("suffix", ["", ".swap"])
def test_the_parts_of_a_segment_below_the_recovery_point_are_known_too(suffix: str, *, clean: bool) -> None:
    filesystem, batches = split_by_apache_kafka(suffix)
    log = reopened_when_flushed(indexed(filesystem), clean=clean)
    assert log.segments.bases == [FIRST, FAR + 2, 2 * FAR + 40, NEXT]
    assert read_all(log) == batches
    assert not filesystem.exists(f"/data/topic-0/{file_name(0, LOG_SUFFIX)}")


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_a_segment_below_the_recovery_point_is_split_too(*, clean: bool) -> None:
    filesystem, batches = an_overflowed_log()
    log = reopened_when_flushed(indexed(filesystem), clean=clean)
    check(log, batches)
    log.update_high_watermark(log.log_end_offset)
    clean_log(log)  # which puts into an index what there is


def test_what_a_damaged_segment_loses_when_it_is_split_is_told(caplog: pytest.LogCaptureFixture) -> None:
    filesystem, batches = an_overflowed_log()
    path = f"/data/topic-0/{file_name(0, LOG_SUFFIX)}"
    at = filesystem.size(path) - 2 * len(bytes(a_batch(2)))
    filesystem.open(path).pwrite(b"\xff" * 4, at + 8)  # the size of the last batch but one
    log = reopened_when_flushed(indexed(filesystem), clean=True)
    assert read_all(log).startswith(batches[:at])
    assert f"{path}: {len(bytes(a_batch(2))) * 2} bytes from byte {at} on begin with a malformed batch" in caplog.text


def an_overflowed_active_segment() -> MemoryFileSystem:
    filesystem, _ = an_overflowed_log()
    filesystem.unlink(f"/data/topic-0/{file_name(NEXT, LOG_SUFFIX)}")
    return indexed(filesystem)


def test_the_active_segment_is_split_before_it_rolls_and_the_cleaner_meets_it() -> None:
    filesystem = an_overflowed_active_segment()
    log = reopened_when_flushed(filesystem, clean=True)
    assert log.segments.bases == [0, FAR + 2, 2 * FAR + 40]
    assert log.log_end_offset == OFFSETS[-1] + 2
    append(log, epoch=1)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    clean_log(log)


def test_a_cleaner_that_meets_such_offsets_names_the_segment_and_leaves_it() -> None:
    filesystem = an_overflowed_active_segment()
    file = filesystem.open(f"/data/topic-0/{file_name(0, LOG_SUFFIX)}")
    whole = file.pread(file.size(), 0)
    file.truncate(0)
    log = reopened_when_flushed(filesystem, clean=True)
    file.pwrite(whole, 0)  # by whom, if not by a broken disk?
    log.segments.active.size = len(whole)
    log.log_end_offset = NEXT
    log.roll()
    log.update_high_watermark(NEXT)
    with pytest.raises(SegmentOffsetOverflow, match=f"{file_name(0, LOG_SUFFIX)}.*: offset {OFFSETS[-1] + 1} does not fit"):
        clean_log(log)
    assert not [name for name in filesystem.list_directory("/data/topic-0") if name.endswith(".cleaned")]
    assert file.pread(file.size(), 0) == whole


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_a_segment_whose_first_batch_is_too_far_already_begins_with_it(*, clean: bool) -> None:
    filesystem, _ = an_overflowed_log()
    far = b"".join(bytes(a_batch(2, base_offset=offset, leader_epoch=1)) for offset in OFFSETS[2:])
    file = filesystem.open(f"/data/topic-0/{file_name(0, LOG_SUFFIX)}")
    file.truncate(0)
    file.pwrite(far, 0)
    log = reopened_when_flushed(indexed(filesystem), clean=clean)
    assert log.segments.bases == [FAR + 2, 2 * FAR + 40, NEXT]
    assert read_all(log) == far + bytes(a_batch(2, base_offset=NEXT, leader_epoch=1))


def test_a_segment_that_is_far_from_the_next_stays_as_it_is() -> None:
    filesystem, _ = an_overflowed_log()
    near = b"".join(bytes(a_batch(2, base_offset=offset, leader_epoch=1)) for offset in OFFSETS[:2])
    file = filesystem.open(f"/data/topic-0/{file_name(0, LOG_SUFFIX)}")
    file.truncate(0)
    file.pwrite(near, 0)
    log = reopened_when_flushed(indexed(filesystem), clean=True)
    assert log.segments.bases == [0, NEXT]


def test_segments_that_are_not_all_of_it_are_no_parts() -> None:
    filesystem, batches = split_by_apache_kafka()
    filesystem.open(f"/data/topic-0/{file_name(FAR + 2, LOG_SUFFIX)}").pwrite(b"x", 100)
    log = reopened(a_context(filesystem))
    assert log.log_end_offset == OFFSETS[1] + 2
    assert batches.startswith(read_all(log))
