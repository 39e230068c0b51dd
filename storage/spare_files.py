"""Empty files that a thread makes ahead, so that a log that rolls only has to name them: to find an inode takes ext4 0.02 to 0.7 ms of a
processor, to name a file 0.02 to 0.04, and a roll needs four.

`LogManager` owns one, on the event loop. The files have no name until they are taken (O_TMPFILE), so a crash leaves nothing of them. Where
the file system knows no such files, or none is left because very many logs roll at once, whoever opens a file makes it.
"""

from collections import deque
from collections.abc import Iterable

from storage.background import Background
from storage.filesystem import File, FileSystem

SPARE_FILES = 32
"""Per log directory: for eight logs that roll before a thread gets to make more. Each is an open file."""


class SpareFiles:
    """See the module."""

    __slots__ = ("_background", "_being_filled", "_files", "_fs")

    def __init__(self, filesystem: FileSystem, background: Background) -> None:
        self._fs = filesystem
        self._background = background
        self._files: dict[str, deque[File]] = {}
        self._being_filled: set[str] = set()

    def fill(self, log_dir: str) -> None:
        """Has a thread make what is missing. From now on the directory has spare files."""
        files = self._files.setdefault(log_dir, deque())
        if len(files) == SPARE_FILES or log_dir in self._being_filled:
            return
        self._being_filled.add(log_dir)

        def make() -> None:
            while len(files) < SPARE_FILES:
                file = self._fs.open_unnamed(log_dir)
                if file is None:
                    return
                files.append(file)

        # An error is for whoever makes a file that is needed.
        self._background.submit(f"spare-files {log_dir}", make, lambda _: self._being_filled.discard(log_dir))

    def take(self, log_dir: str, paths: Iterable[str]) -> None:
        """Gives spare files the names `paths`, as far as there are some."""
        files = self._files.get(log_dir)
        if files is None:
            return
        try:
            for path in paths:
                if not files:
                    break
                self._fs.link(path, files.popleft())
        except OSError:
            pass  # as above
        self.fill(log_dir)

    def close(self, log_dir: str) -> None:
        """The directory has none any more."""
        self._files.pop(log_dir, None)
