"""Files that a crash left half done: a cleaning before, within and after its swap."""

import pytest

from ottla.storage.disk.file_names import CLEANED_SUFFIX, SWAP_SUFFIX, file_name, offset_of_file_name
from ottla.storage.errors import LogDirFailure, StorageError
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.segment import Segment
from tests.support.batches import a_batch
from tests.support.filesystems import FaultyFileSystem, MemoryFileSystem
from tests.support.logs import a_config, a_context, a_log, append, read_all

DIRECTORY = "/data/topic-0"
CONFIG = {"segment_bytes": 2 * len(a_batch(2))}


def _before_cleaning() -> MemoryFileSystem:
    """Segments 0, 4 and 8 with two batches of two records each."""
    filesystem = MemoryFileSystem()
    log = a_log(a_context(filesystem), **CONFIG)
    for _ in range(6):
        append(log, a_batch(2))
    log.flush()
    log.close()
    return filesystem


def _add_cleaned(filesystem: MemoryFileSystem, base_offset: int, offset: int, suffix: str) -> None:
    """A segment at `base_offset` of which only the record at `offset` is left, under a name that ends with `suffix`."""
    settings = LogSettings(a_config(segment_index_bytes=1200))
    segment = Segment.create(filesystem, DIRECTORY, base_offset, settings, now_ms=0, suffix=CLEANED_SUFFIX)
    segment.append(a_batch(1, base_offset=offset), len(a_batch(1)), offset, 1000, offset)
    segment.become_inactive()
    segment.change_suffix(suffix)


def _offsets(filesystem: MemoryFileSystem, *, clean: bool = False) -> tuple[list[int], int]:
    log = a_log(a_context(filesystem), clean=clean, **CONFIG)
    assert not [name for name in filesystem.list_directory(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]
    return log.segments.bases, len(read_all(log))


def test_names_say_their_offset() -> None:
    assert file_name(21, ".log") == "00000000000000000021.log"
    assert offset_of_file_name("00000000000000000021.timeindex.deleted") == 21
    assert offset_of_file_name("leader-epoch-checkpoint") is None
    assert offset_of_file_name("partition.metadata") is None


@pytest.mark.parametrize("clean", [True, False])
def test_a_cleaning_that_had_not_finished_is_undone(clean: bool) -> None:
    filesystem = _before_cleaning()
    whole = _offsets(_before_cleaning())
    _add_cleaned(filesystem, 0, 3, CLEANED_SUFFIX)
    assert _offsets(filesystem, clean=clean) == whole


@pytest.mark.parametrize("clean", [True, False])
def test_a_swap_that_had_begun_is_finished(clean: bool) -> None:
    filesystem = _before_cleaning()
    _add_cleaned(filesystem, 0, 7, SWAP_SUFFIX)
    # The cleaned segment reaches to offset 7, so it stands for those that began at 0 and 4.
    assert _offsets(filesystem, clean=clean) == ([0, 8], len(a_batch(1)) + 2 * len(a_batch(2)))


def test_swap_files_behind_a_cleaned_file_are_not_trusted() -> None:
    filesystem = _before_cleaning()
    whole = _offsets(_before_cleaning())
    _add_cleaned(filesystem, 0, 3, CLEANED_SUFFIX)
    _add_cleaned(filesystem, 4, 7, SWAP_SUFFIX)
    assert _offsets(filesystem) == whole


def test_deleted_files_go() -> None:
    filesystem = _before_cleaning()
    filesystem.open(f"{DIRECTORY}/{file_name(0, '.log')}.deleted", create=True).write(b"x")
    assert _offsets(filesystem)[0] == [0, 4, 8]


def _raise(failure: StorageError | None) -> None:
    if failure is not None:
        raise failure


def test_a_replacement_that_dies_at_any_call_leaves_the_old_segments_or_the_new_one() -> None:
    new = ([0, 8], len(a_batch(1)) + 2 * len(a_batch(2)))
    old = ([0, 4, 8], 6 * len(a_batch(2)))
    outcomes = []
    for failing in range(1, 100):
        filesystem = _before_cleaning()
        faulty = FaultyFileSystem(filesystem)
        log = a_log(a_context(faulty), **CONFIG)
        segment = Segment.create(log.context.filesystem, DIRECTORY, 0, log.segments.settings, now_ms=0, suffix=CLEANED_SUFFIX)
        segment.append(a_batch(1, base_offset=7), len(a_batch(1)), 7, 1000, 7)
        segment.become_inactive()
        faulty.fail_at = faulty.calls + failing
        try:
            log.replace_segments(0, list(log.segments)[:2], _raise)
        except LogDirFailure:
            pass
        else:
            break
        outcomes.append(_offsets(filesystem))
    assert len(outcomes) > 5
    assert outcomes == sorted(outcomes, key=lambda outcome: outcome == new)
    assert set(map(str, outcomes)) == {str(old), str(new)}


def test_a_file_whose_name_has_not_twenty_digits_is_no_segment() -> None:
    context = a_context()
    log = a_log(context)
    for _ in range(5):
        append(log)
    log.close()
    context.filesystem.open(f"{log.directory}/12.log", create=True).write(b"notes")
    log = a_log(context)
    assert (log.segments.bases, log.log_end_offset) == ([0], 5)
    assert context.filesystem.read_file(f"{log.directory}/12.log") == b"notes"


@pytest.mark.parametrize("clean", [True, False])
def test_small_files_that_were_being_written_go_and_what_is_not_ours_stays(clean: bool) -> None:
    filesystem = _before_cleaning()
    names = ["leader-epoch-checkpoint.tmp", "notes.tmp", "partition.metadata.tmp"]
    for name in names:
        filesystem.open(f"{DIRECTORY}/{name}", create=True).write(b"half")
    a_log(a_context(filesystem), clean=clean, **CONFIG)
    assert [name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".tmp")] == ["notes.tmp"]
