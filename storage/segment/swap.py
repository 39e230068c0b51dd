"""Replaces segments by the cleaned segment made from them, in a thread, because each rename may wait for the file system's journal.

`Discards.swap` creates a `Swap`. From then on the log has the cleaned segment. The event loop reads it under the current
names of its files (`CleanedFiles`). A `Swap` is a `Discard`: truncating, restarting and closing the log, and deleting segments of it, wait
for the swap in the same way.

The renames are those of Apache Kafka, in its order: `.cleaned` becomes `.swap`, the old segments become `.deleted`, `.swap` is dropped. A
crash at any point leaves either the old segments, or the new one as `.swap` files with which the next start completes the swap.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.storage.disk.file_names import CLEANED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, SWAP_SUFFIX, file_name
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.disk.small_files import SmallFiles
from ottla.storage.disk.translated_paths import TranslatedPaths
from ottla.storage.segment.discard import Discard
from ottla.storage.segment.log_settings import LogSettings
from ottla.storage.segment.segment import Segment

T = TypeVar("T")

_STAGES = (CLEANED_SUFFIX, SWAP_SUFFIX, "")


class CleanedFiles(TranslatedPaths):
    """A `FileSystem` for one segment that is being swapped in. Callers use the final names of the files.

    Takes no lock, because the renaming thread may hold it for long. If a file is not found under its name, it has already been renamed to
    the next name. Until the end of the swap, a file that the cleaner did not write counts as missing, although the old segment may have one
    of that name.
    """

    __slots__ = ("_missing", "_stages")

    def __init__(self, filesystem: FileSystem, directory: str, base_offset: int) -> None:
        super().__init__(filesystem)
        names = [file_name(base_offset, suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES)]
        self._stages = {name: 0 for name in names if filesystem.exists(f"{directory}/{name}{CLEANED_SUFFIX}")}
        """File name -> number of renames that the file is known to have behind it."""
        self._missing = frozenset(names) - self._stages.keys()

    @property
    def names(self) -> list[str]:
        """Names of the existing files, the log first; empty once all are in place."""
        return list(self._stages)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        # No new file may take a name that the file had before.
        file = super().open(path, create=create and not self._stages, read_only=read_only)
        file.path = path
        return file

    def exists(self, path: str) -> bool:
        return super().exists(path) if not self._stages else path.rpartition("/")[2] in self._stages

    def on_renamed(self, name: str) -> None:
        """Record that the file has its next name."""
        self._stages[name] += 1

    def on_done(self) -> None:
        """Record that all files have their final names. Other files of these names belong to the segment from now on."""
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
    """Puts the segment in the files `<base_offset>.*.cleaned` in place of `segments`, then discards the producer snapshots `snapshots`."""

    __slots__ = ("_files", "_small_files", "cleaned")

    def __init__(
        self,
        filesystem: FileSystem,
        small_files: SmallFiles,
        base_offset: int,
        segments: Sequence[Segment],
        settings: LogSettings,
        *,
        now_ms: int,
    ) -> None:
        """May raise OSError."""
        directory = small_files.directory
        self._small_files = small_files
        self._files = CleanedFiles(filesystem, directory, base_offset)
        self.cleaned = Segment(self._files, directory, base_offset, settings, now_ms=now_ms)
        super().__init__(filesystem, small_files, segments, [])

    def give_back(self, filesystem: FileSystem, directory: str) -> None:
        super().give_back(filesystem, directory)
        if self.cleaned.filesystem is self._files:  # otherwise another thread uses the segment already
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
