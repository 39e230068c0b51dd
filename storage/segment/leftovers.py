"""Cleans up files that a crash left incomplete in a partition's directory, when the partition is opened.

`.deleted` files are removed. `.cleaned` files are removed, because the cleaner had not finished them. `.swap` files are complete: they
replace the segments from which they were made. `recovery` calls this before it reads segments. The rules are those of Apache Kafka's
LogLoader, except that it keeps the `.tmp` of a small file, which is removed here. A cancelled cleaning removes its own files while the log
is open.
"""

import logging

from ottla.storage.disk.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    file_name,
    offset_of_file_name,
)
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.disk.leader_epochs import LEADER_EPOCH_CHECKPOINT
from ottla.storage.disk.partition_metadata import PARTITION_METADATA
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.segment import Segment

log = logging.getLogger(__name__)

_TEMPORARY = frozenset({LEADER_EPOCH_CHECKPOINT + TEMPORARY_SUFFIX, PARTITION_METADATA + TEMPORARY_SUFFIX})


def clean_up_leftovers(filesystem: FileSystem, directory: str, settings: LogSettings, now_ms: int) -> list[str]:
    """Leaves only regular files in the directory. Returns their names, sorted. May raise OSError."""
    names = filesystem.list_directory(directory)
    if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) or name in _TEMPORARY for name in names):
        return names
    swaps = _remove_temporary_files(filesystem, directory, names)
    if swaps:
        _finish_swaps(filesystem, directory, swaps, settings, now_ms)
    return filesystem.list_directory(directory)


def remove_cleaned(filesystem: FileSystem, directory: str, base_offset: int) -> None:
    """Removes the files of one group that a cancelled cleaning left. May raise OSError."""
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        path = f"{directory}/{file_name(base_offset, suffix)}{CLEANED_SUFFIX}"
        if filesystem.exists(path):
            filesystem.unlink(path)


def _remove_temporary_files(filesystem: FileSystem, directory: str, names: list[str]) -> list[str]:
    """Removes temporary and incomplete files. Returns the complete swap files."""
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    # A split or cleaning with remaining .cleaned files had not renamed all of them. Swap files from the first of those offsets on are
    # incomplete, and the segments from which they were made still exist.
    first_cleaned = min((_offset(name) for name in cleaned), default=None)
    incomplete = [name for name in swaps if first_cleaned is not None and _offset(name) >= first_cleaned]
    worthless = [name for name in names if name.endswith(DELETED_SUFFIX) or name in _TEMPORARY] + incomplete + cleaned
    for name in worthless:
        filesystem.unlink(f"{directory}/{name}")
    if worthless:
        log.info("%s: removed %d files that an earlier run left: %s", directory, len(worthless), ", ".join(worthless))
    return [name for name in swaps if name not in incomplete]


def _finish_swaps(filesystem: FileSystem, directory: str, swaps: list[str], settings: LogSettings, now_ms: int) -> None:
    start = end = -1
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            segment = Segment(filesystem, directory, _offset(name), settings, now_ms=now_ms, suffix=SWAP_SUFFIX)
            start = segment.base_offset if start < 0 else min(start, segment.base_offset)
            end = max(end, segment.read_end()[0])
            segment.close_without_writing()
    log.info("%s: finishing the replacement of the segments in [%d, %d)", directory, start, end)
    for name in filesystem.list_directory(directory):
        offset = offset_of_file_name(name)
        if offset is not None and not name.endswith(SWAP_SUFFIX) and start <= offset < end:
            filesystem.unlink(f"{directory}/{name}")
    for name in swaps:
        filesystem.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    filesystem.sync_directory(directory)


def _offset(name: str) -> int:
    offset = offset_of_file_name(name)
    return -1 if offset is None else offset
