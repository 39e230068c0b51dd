"""Files of which nothing is in the page cache but what was read."""

from tests.support.filesystems import MemoryFile, MemoryFileSystem


class ColdFile(MemoryFile):
    """A file of which nothing is cached but what was read."""

    cached: dict[str, int]
    """By path, a number with a bit for every byte."""

    def pread(self, length: int, at: int) -> bytes:
        self.cached[self.path] = self.cached.get(self.path, 0) | ((1 << length) - 1) << at
        return super().pread(length, at)

    def is_cached(self, length: int, at: int) -> bool:
        wanted = ((1 << length) - 1) << at
        return self.cached.get(self.path, 0) & wanted == wanted

    def pread_cached(self, length: int, at: int) -> bytes | None:
        return super().pread(length, at) if self.is_cached(min(length, self.size() - at), at) else None


class ColdFileSystem(MemoryFileSystem):
    """Opens files cold once `cached` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.cached: dict[str, int] | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = super().open(path, create=create, read_only=read_only)
        if self.cached is not None:
            file.__class__ = ColdFile
            assert isinstance(file, ColdFile)
            file.cached = self.cached
        return file
