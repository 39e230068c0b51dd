"""Putting the files of a cleaned segment in the place of those that it was made from, in a thread: each of the renames may wait for the
journal of the file system.

`PartitionLog.replace_segments` begins one. From then on the log has the cleaned segment, and the event loop reads it under whatever name
its files have at the moment (`CleanedFiles`). A `Swap` is a `Discard`: who cuts the log, begins it anew, deletes segments of it or closes
it waits for it in the same way.

The renames are those of Apache Kafka, in its order: `.cleaned` becomes `.swap`, the old segments become `.deleted`, `.swap` goes. A crash
at any point leaves either the old segments, or the new one as `.swap` files that the next start finishes.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from storage.disk.file_names import CLEANED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, SWAP_SUFFIX, file_name
from storage.disk.filesystem import File, FileSystem
from storage.disk.translated_paths import TranslatedPaths
from storage.segment.discards import Discard
from storage.segment.segment import Segment

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

T = TypeVar("T")

_STAGES = (CLEANED_SUFFIX, SWAP_SUFFIX, "")


class CleanedFiles(TranslatedPaths):
    """A `FileSystem` for one segment that is being put in place: it is asked for the names that the files will have.

    Takes no lock, for who renames may hold it for long: a file that is not found under the name it had has the next one by then. Until all
    is done, a file that the cleaner did not write is not taken for the one of the old segment that has its name.
    """

    __slots__ = ("_missing", "_stages")

    def __init__(self, filesystem: FileSystem, directory: str, base_offset: int) -> None:
        super().__init__(filesystem)
        names = [file_name(base_offset, suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES)]
        self._stages = {name: 0 for name in names if filesystem.exists(f"{directory}/{name}{CLEANED_SUFFIX}")}
        """By name, how many of the renames the file is known to have behind it."""
        self._missing = frozenset(names) - self._stages.keys()

    @property
    def names(self) -> list[str]:
        """Of the files that are there, the log first; none when all are in place."""
        return list(self._stages)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        # A name that the file had until now is not to be taken by a new one.
        file = super().open(path, create=create and not self._stages, read_only=read_only)
        file.path = path
        return file

    def exists(self, path: str) -> bool:
        return super().exists(path) if not self._stages else path.rpartition("/")[2] in self._stages

    def on_renamed(self, name: str) -> None:
        """The file has the next name now."""
        self._stages[name] += 1

    def on_done(self) -> None:
        """All have their names, and what else has such a name is of this segment."""
        self._stages = {}

    def _at(self, path: str, call: Callable[[str], T]) -> T:
        stages = self._stages
        if not stages:
            return call(path)
        name = path.rpartition("/")[2]
        if name in self._missing:
            return call(path + CLEANED_SUFFIX)
        for suffix in _STAGES[stages.get(name, 0) : -1]:
            try:
                return call(path + suffix)
            except FileNotFoundError:
                continue
        return call(path)


class Swap(Discard):
    """Of the segment whose files are `<base_offset>.*.cleaned`, for `segments`; then the producer snapshots `snapshots` go."""

    __slots__ = ("_files", "_small_files", "cleaned")

    def __init__(self, log: "PartitionLog", base_offset: int, segments: Sequence[Segment], snapshots: Sequence[str]) -> None:
        """May raise OSError."""
        self._small_files = log.small_files
        self._files = CleanedFiles(log.context.filesystem, log.directory, base_offset)
        self.cleaned = Segment(self._files, log.directory, base_offset, log.settings, now_ms=log.context.clock.now_ms())
        super().__init__(log, segments, snapshots)

    def give_back(self, filesystem: FileSystem, directory: str) -> None:
        super().give_back(filesystem, directory)
        if self.cleaned.filesystem is self._files:  # else it is another thread's already
            self.cleaned.use_filesystem(filesystem)

    def _rename(self) -> None:
        names = self._files.names
        self._rename_cleaned(names, CLEANED_SUFFIX, SWAP_SUFFIX)
        self._rename_segments()
        self._rename_cleaned(names, SWAP_SUFFIX, "")
        self._files.on_done()
        self._rename_snapshots()
        self._small_files.sync_directory()

    def _rename_cleaned(self, names: Sequence[str], old: str, new: str) -> None:
        for name in names:
            path = f"{self._directory}/{name}"
            self._filesystem.rename(path + old, path + new)
            self._files.on_renamed(name)
