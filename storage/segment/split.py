"""Splits segments that have offsets too far from the base offset for an index entry (KAFKA-6264).

Old versions of Apache Kafka left such segments, because compaction merged segments by their size alone. A start finds them and splits them
here, as Apache Kafka does in recovery and in the cleaner. The new segments are written as `.cleaned` files and become `.swap` files, the
last one first. A crash leaves either the old segment, or files with which the next start completes the split. Apache Kafka names the first
new segment after its first batch, which may begin after the old base offset. If it is killed at the wrong moment, it leaves the old segment
followed by all of its parts (`has_its_parts`).
"""

import logging
from collections.abc import Sequence
from contextlib import suppress

from ottla.protocol.records.errors import RecordFormatError
from ottla.storage.disk.file_names import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, file_name
from ottla.storage.disk.filesystem import FileSystem
from ottla.storage.segment.batch_scan import batches_from
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.segment.segment import Segment

log = logging.getLogger(__name__)

_COMPARED_BYTES = 1 << 20


def has_its_parts(segment: Segment, later: Sequence[int]) -> bool:
    """Whether the segments at the offsets `later`, from the first on, hold together exactly the bytes of `segment`.

    Blocks; may raise OSError.
    """
    filesystem = segment.filesystem
    directory = segment.path.rpartition("/")[0]
    compared = 0
    for base_offset in later:
        if compared == segment.size:
            break
        part = filesystem.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}", read_only=True)
        end = compared + part.size()
        if end == compared or end > segment.size:
            return False
        for position in range(compared, end, _COMPARED_BYTES):
            length = min(_COMPARED_BYTES, end - position)
            if segment.file.pread(length, position) != part.pread(length, position - compared):
                return False
        part.close()
        compared = end
    return compared == segment.size


def find_overflowed_segment(segments: Sequence[Segment], unflushed_from: int) -> Segment | None:
    """The first of a log's `segments` that must be split, or was split and should be removed, and that recovery does not examine.

    Recovery examines the segments from `unflushed_from` on. For nearly all logs the base offsets and sizes show that there is none,
    without disk access. Blocks; may raise OSError.
    """
    if not segments or segments[-1].base_offset - segments[0].base_offset <= MAX_RELATIVE_OFFSET // 2:
        return None
    for at, segment in enumerate(segments[:-1]):
        if segment.base_offset >= unflushed_from:
            break
        following = segments[at + 1].base_offset
        if following - segment.base_offset > MAX_RELATIVE_OFFSET + 1:
            if _overflows(segment, following):
                return segment
        elif _has_parts_of_its_size(segment, segments[at + 1 :]):
            if has_its_parts(segment, [each.base_offset for each in segments[at + 1 :]]):
                return segment
            segment.release()
    return None


def _overflows(segment: Segment, following: int) -> bool:
    last_offset = -1
    with suppress(RecordFormatError):
        for _, header in batches_from(segment.file, 0, segment.size):
            last_offset = header.last_offset
            if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                break
    segment.release()
    return last_offset - segment.base_offset > MAX_RELATIVE_OFFSET and last_offset < following


def _has_parts_of_its_size(segment: Segment, later: Sequence[Segment]) -> bool:
    """Whether the first of `later` are together as long as `segment`, and too many offsets apart to fit into one segment."""
    total = 0
    for at, part in enumerate(later):
        total += part.size
        if total >= segment.size:
            end = later[at + 1].base_offset if at + 1 < len(later) else part.base_offset
            return 0 < total == segment.size and end - segment.base_offset > MAX_RELATIVE_OFFSET
    return False


def split_overflowed_segment(
    filesystem: FileSystem, directory: str, base_offset: int, later: Sequence[int], settings: LogSettings, now_ms: int
) -> None:
    """Replaces the segment at `base_offset` by segments whose offsets fit, on the disk. Batches stay unchanged.

    The following segments begin at `later`. If they are the parts of the segment already, it is removed. The last new segment ends before
    the first malformed batch. Blocks; may raise OSError.
    """
    old = Segment(filesystem, directory, base_offset, settings, now_ms=now_ms)
    if has_its_parts(old, later):
        log.warning("%s: was split already, and its parts are complete; deleted", old.path)
        old.delete()
        filesystem.sync_directory(directory)
        return
    new: list[Segment] = []
    with suppress(RecordFormatError):  # recovery would cut there, too
        for position, header in batches_from(old.file, 0, old.size):
            if not new or header.last_offset - new[-1].base_offset > MAX_RELATIVE_OFFSET:
                begin = header.base_offset if new or header.last_offset - base_offset > MAX_RELATIVE_OFFSET else base_offset
                new.append(Segment.create(filesystem, directory, begin, settings, now_ms=now_ms, suffix=CLEANED_SUFFIX))
            batch = old.file.pread(header.size, position)
            new[-1].append(batch, header.size, header.last_offset, header.max_timestamp, header.last_offset)
    for segment in new:
        segment.complete_time_index()
        segment.offset_index.trim()
        segment.time_index.trim()
        segment.sync()
    log.warning(
        "%s: some offsets are too far from its base offset; split into segments at %s", old.path, [each.base_offset for each in new]
    )
    if lost := old.size - sum(each.size for each in new):
        log.error(
            "%s: %d bytes from byte %d on begin with a malformed batch, and are in none of these segments; "
            "they are lost, unless another broker has a replica",
            old.path, lost, old.size - lost,
        )  # fmt: skip
    for segment in reversed(new):
        segment.change_suffix(SWAP_SUFFIX)
    filesystem.sync_directory(directory)
    old.delete()
    for segment in new:
        segment.change_suffix("")
        segment.close_without_writing()
    filesystem.sync_directory(directory)
