"""Writes the small files of a partition's directory (`partition.metadata`, `leader-epoch-checkpoint`) in threads, while
that may be renamed.

The directory is renamed when the partition moves to another log directory or is deleted. Every `PartitionLog` owns one. Invariants: a file
that is being written ends up in the directory of its own log, whatever its current name, and never in another directory that has taken the
old name. If the directory is removed, the write is dropped. The lock is held only for an open or a rename, so that the loop never waits for
an fsync.
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.storage.disk.file_names import TEMPORARY_SUFFIX
from ottla.storage.disk.filesystem import FileSystem


class SmallFiles:
    """See the module."""

    __slots__ = ("_filesystem", "_gone", "_lock", "directory")

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        self.directory = directory
        self._filesystem = filesystem
        self._gone = False
        self._lock = threading.Lock()

    def replace(self, name: str, data: bytes) -> None:
        """Replaces the file in one step, durable on return. Blocks; for any thread, one at a time for each name.

        Raises OSError.
        """
        temporary = name + TEMPORARY_SUFFIX
        with self._lock:
            if self.is_gone():
                return
            file = self._filesystem.open(f"{self.directory}/{temporary}", create=True)
        try:
            file.truncate(0)
            file.write(data)
            file.sync()
        finally:
            file.close()
        with self._lock:
            if self.is_gone():
                return
            directory = self.directory
            self._filesystem.rename(f"{directory}/{temporary}", f"{directory}/{name}")
        self.sync_directory()

    def remove(self, name: str) -> None:
        """Deletes the file, if it exists; no file of that name may be created meanwhile. Blocks, without the lock;
        raises OSError."""
        directory = self.directory
        while not self.is_gone():
            try:
                self._filesystem.unlink(f"{directory}/{name}")
            except FileNotFoundError:
                with self._lock:
                    if directory == self.directory:
                        return
                    directory = self.directory  # it was renamed meanwhile
            else:
                return

    def move_to(self, directory: str) -> None:
        """Renames the directory. Raises OSError."""
        with self._lock:
            self._filesystem.rename(self.directory, directory)
            self.directory = directory

    @contextmanager
    def where_it_is(self) -> Iterator[str]:
        """The directory, whose name does not change within the context. Raises FileNotFoundError if it is removed."""
        with self._lock:
            if self._gone:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.directory)
            yield self.directory

    def forget(self) -> None:
        """The directory is about to be removed: no file is created in it any more."""
        with self._lock:
            self._gone = True

    def is_gone(self) -> bool:
        """Whether `forget` was called."""
        return self._gone

    def sync_directory(self) -> None:
        """Makes the entries of the directory durable, whatever its current name. Blocks; raises OSError."""
        directory = self.directory
        while not self.is_gone():
            try:
                self._filesystem.sync_directory(directory)
            except FileNotFoundError:
                with self._lock:  # otherwise a rename in progress might not be visible yet
                    if directory == self.directory and not self.is_gone():
                        raise
            if directory == self.directory:
                return
            directory = self.directory  # it was renamed meanwhile
