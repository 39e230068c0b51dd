"""Manages the log directories of a broker: creates, locks and identifies them, and takes them offline when the disk
fails.

Owned by `LogManager`. At the start each directory is created if missing, locked against other brokers, and checked to belong to this
broker. The file `.kafka_cleanshutdown` shows that its logs were closed. It is removed at once, so that a crash during the load is
recognised.

Invariant: `live` has the working directories; at least one, or the broker stops.
"""

import logging
import os
from collections.abc import Iterable

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import replace_file
from ottla.storage.disk.directory_names import PERMITTED_DIRECTORIES, parse_directory_name
from ottla.storage.disk.filesystem import File, FileSystem
from ottla.storage.disk.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    check_meta_properties,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.disk.start_errors import (
    DuplicateDirectoryId,
    DuplicateLogDirectory,
    ForeignDirectory,
    LogDirectoryLocked,
    NoUsableLogDirectory,
)
from ottla.storage.errors import LogDirFailure, LogDirNotFound

log = logging.getLogger(__name__)

MAX_PREFERRED_LOG_DIRS = 10_000
"""Partitions that do not exist yet and have a preferred directory, at most; any client may name any partition."""

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"


class LogDirectory:
    """One of `log.dirs`."""

    __slots__ = ("failure", "had_clean_shutdown", "is_loaded", "lock", "log_count", "meta_properties", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None
        """Why it is offline."""
        self.is_loaded = False
        """Whether all its logs were opened; otherwise a stop is not a clean one."""
        self.had_clean_shutdown = False
        self.log_count = 0
        self.lock: File | None = None
        self.meta_properties: MetaProperties | None = None

    @property
    def is_live(self) -> bool:
        """Whether it is online."""
        return self.failure is None


class LogDirectories:
    """All of `log.dirs`, in order."""

    def __init__(self, paths: Iterable[str], filesystem: FileSystem) -> None:
        """Raises DuplicateLogDirectory."""
        self._fs = filesystem
        self.all: dict[str, LogDirectory] = {}
        self.preferred: dict[TopicPartition, str] = {}
        """Directories in which partitions are to be created that do not exist yet."""
        for path in paths:
            absolute = os.path.abspath(path)
            if absolute in self.all:
                raise DuplicateLogDirectory(absolute)
            self.all[absolute] = LogDirectory(absolute)

    def __getitem__(self, path: str) -> LogDirectory:
        return self.all[path]

    @property
    def live(self) -> list[LogDirectory]:
        """The online directories."""
        return [directory for directory in self.all.values() if directory.is_live]

    @property
    def offline(self) -> list[str]:
        """The paths of the failed directories."""
        return [path for path, directory in self.all.items() if not directory.is_live]

    @property
    def stored_broker_id(self) -> int | None:
        """The broker id stored in a directory, for a broker without a configured one."""
        found = (each.meta_properties.broker_id for each in self.live if each.meta_properties is not None)
        return next((broker_id for broker_id in found if broker_id is not None), None)

    def by_fewest_logs(self) -> list[LogDirectory]:
        """The online directories, those with the fewest logs first: the order of preference for a new partition."""
        return sorted(self.live, key=lambda directory: directory.log_count)

    def open(self) -> None:
        """Creates, checks and locks the directories and reads which broker they belong to.

        A directory that fails is taken offline. Raises ForeignDirectory, LogDirectoryLocked, InvalidMetaProperties,
        NoUsableLogDirectory.
        """
        try:
            for directory in self.live:
                try:
                    self._open(directory)
                except OSError as error:
                    self._take_offline(directory, f"{error.filename or directory.path}: {error.strerror or error}")
            self.check_any_live()  # its error names the reasons of all of them
            for path in self.offline:
                self._log_offline(self.all[path])
        except BaseException:
            self.unlock()
            raise

    def identify(self, cluster_id: str, broker_id: int, now_ms: int) -> None:
        """Checks that the directories belong to this broker; marks new ones as its own.

        Raises InconsistentClusterId, InconsistentBrokerId, DuplicateDirectoryId, NoUsableLogDirectory.
        """
        by_id: dict[str, str] = {}
        for directory in self.live:
            if directory.meta_properties is not None:
                check_meta_properties(directory.path, directory.meta_properties, cluster_id, broker_id)
                directory_id = directory.meta_properties.directory_id
                if directory_id is not None and by_id.setdefault(directory_id, directory.path) != directory.path:
                    raise DuplicateDirectoryId(directory_id, by_id[directory_id], directory.path)
        for directory in self.live:
            found = directory.meta_properties
            wanted = MetaProperties(broker_id, cluster_id, None if found is None else found.directory_id)
            if wanted != found:
                try:
                    write_meta_properties(directory.path, wanted, self._fs, now_ms)
                except OSError as error:
                    self.fail(directory.path, f"meta.properties cannot be written: {error.strerror or error}")
                directory.meta_properties = wanted
        self.check_any_live()

    def take_clean_shutdown(self, directory: LogDirectory) -> bool:
        """Whether the last stop was clean; removes the mark of it. Raises OSError."""
        path = f"{directory.path}/{CLEAN_SHUTDOWN_FILE}"
        directory.had_clean_shutdown = self._fs.exists(path)
        if directory.had_clean_shutdown:
            self._fs.unlink(path)
            # The removal must survive a crash: otherwise the next start would trust logs that were not closed.
            self._fs.sync_directory(directory.path)
        return directory.had_clean_shutdown

    def write_clean_shutdown(self, directory: LogDirectory, broker_epoch: int) -> None:
        """Marks the directory as cleanly shut down: all its logs are closed and durable. Raises OSError."""
        content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        replace_file(self._fs, f"{directory.path}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    def fail(self, path: str, reason: str) -> bool:
        """Takes the directory offline; False if it was before."""
        directory = self.all[path]
        if not directory.is_live:
            return False
        self._take_offline(directory, reason)
        self._log_offline(directory)
        return True

    def check_any_live(self) -> None:
        """Raises NoUsableLogDirectory."""
        if not self.live:
            raise NoUsableLogDirectory({path: directory.failure or "" for path, directory in self.all.items()})

    def check_known(self, path: str) -> None:
        """Raises LogDirNotFound unless it is one of the absolute paths of `log.dirs`; LogDirFailure when it is offline."""
        if path not in self.all:
            raise LogDirNotFound(path)
        self.check_live(path)

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Has the partition created in the directory, once it is created."""
        if len(self.preferred) >= MAX_PREFERRED_LOG_DIRS and topic_partition not in self.preferred:
            del self.preferred[next(iter(self.preferred))]
        self.preferred[topic_partition] = path

    def check_live(self, path: str) -> None:
        """Raises LogDirFailure when the directory is offline, KeyError when it is not in `log.dirs`."""
        if not self.all[path].is_live:
            raise LogDirFailure(path, path, "it is offline")

    def unlock(self) -> None:
        """Releases the locks of all directories."""
        for directory in self.all.values():
            self._unlock(directory)

    def _open(self, directory: LogDirectory) -> None:
        path = directory.path
        if not self._fs.exists(path):
            self._fs.make_directory(path)
            self._fs.sync_directory(os.path.dirname(path))
            log.info("log directory %s did not exist; created", path)
        if not self._fs.is_directory(path):
            raise NotADirectoryError(20, "is not a directory", path)
        names = self._fs.list_directory(path)
        if META_PROPERTIES not in names:
            # The directory may have been named by mistake: no file is left in it. The contents of a broker's directory
            # are checked when its logs are opened.
            self._check_nothing_foreign(path, names)
        directory.lock = self._fs.try_lock(f"{path}/{LOCK_FILE}")
        if directory.lock is None:
            raise LogDirectoryLocked(path)
        directory.meta_properties = read_meta_properties(path, self._fs)

    def _check_nothing_foreign(self, path: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in PERMITTED_DIRECTORIES and parse_directory_name(name) is None and self._fs.is_directory(f"{path}/{name}"):
                raise ForeignDirectory(f"{path}/{name}")

    def _take_offline(self, directory: LogDirectory, reason: str) -> None:
        directory.failure = reason
        self._unlock(directory)

    def _log_offline(self, directory: LogDirectory) -> None:
        log.error(
            "log directory %s is offline: %s; its partitions are not served until the broker starts with it again",
            directory.path,
            directory.failure,
        )

    def _unlock(self, directory: LogDirectory) -> None:
        lock, directory.lock = directory.lock, None
        if lock is not None:
            try:
                self._fs.unlock(lock)
            except OSError as error:
                log.warning("%s/%s: %s; the lock goes with this process", directory.path, LOCK_FILE, error.strerror or error)
