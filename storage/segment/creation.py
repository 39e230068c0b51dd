"""Making a new segment: a method of `Segment`, kept in a file of its own."""

from typing import TYPE_CHECKING

from storage.disk.file_names import LOG_SUFFIX, file_name
from storage.disk.filesystem import File, FileSystem
from storage.segment.log_settings import LogSettings

if TYPE_CHECKING:
    from storage.segment.segment import Segment


def create(
    cls: "type[Segment]",
    filesystem: FileSystem,
    directory: str,
    base_offset: int,
    settings: LogSettings,
    *,
    now_ms: int,
    roll_jitter_ms: int = 0,
    suffix: str = "",
    file: File | None = None,
    has_index_files: bool = True,
) -> "Segment":
    """A new, empty one with room in its indexes; preallocated if the topic says so. `file` is its log file, if that is there already.

    Without `has_index_files`, `allocate_indexes` is to follow before anybody relies on them; entries are taken from the first one on.
    """
    if file is None:
        file = filesystem.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{suffix}", create=True)
    segment = cls(filesystem, directory, base_offset, settings, now_ms=now_ms, roll_jitter_ms=roll_jitter_ms, suffix=suffix, size=0)
    segment._file = file
    if settings.preallocate:
        file.truncate(settings.segment_bytes)
        segment.has_slack = True
    if has_index_files:
        segment.begin_rebuild()
    else:
        segment.begin_indexes()
    return segment
