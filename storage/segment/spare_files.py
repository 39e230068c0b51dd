"""Empty files that a thread makes ahead, so that a log that rolls only has to name them: to find an inode takes ext4 0.02 to 0.7 ms of a
processor, to name a file 0.02 to 0.04. A roll needs one at once, and three soon (`log_roll`).

`LogManager` owns one, on the event loop. The files have no name until they are taken (O_TMPFILE), so a crash leaves nothing of them. Where
the file system knows no such files, or none is left because very many logs roll at once, whoever opens a file makes it.
"""

from collections import deque

from storage.disk.background import Background
from storage.disk.filesystem import File, FileSystem

SPARE_FILES = 32
"""Per log directory: for as many logs that roll before a thread gets to make more. Each is an open file."""


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

    def take(self, log_dir: str, path: str) -> File | None:
        """A spare file under this name, open; None if there is none."""
        files = self._files.get(log_dir)
        if files is None:
            return None
        file: File | None = None
        if files:
            file = files.popleft()
            try:
                self._fs.link(path, file)
            except OSError:
                file = None  # as above
        self.fill(log_dir)
        return file

    def are_ready(self, log_dir: str, count: int) -> bool:
        """Whether there are so many, or a thread is not about to make them."""
        return len(self._files.get(log_dir, ())) >= count or log_dir not in self._being_filled

    def close(self, log_dir: str) -> None:
        """The directory has none any more."""
        self._files.pop(log_dir, None)
