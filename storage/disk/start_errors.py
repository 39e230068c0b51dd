"""Defines the errors that prevent a start on the log directories; each message has the place and the remedy. None of
them reaches a client."""

from ottla.storage.errors import StorageError


class LogDirectoryError(StorageError):
    """The log directories cannot be used as they are configured."""


class NoUsableLogDirectory(LogDirectoryError):
    """Every log directory failed."""

    def __init__(self, reasons: dict[str, str]) -> None:
        """`reasons` has the reason for each directory."""
        why = ", ".join(f"{log_dir} ({reason})" for log_dir, reason in reasons.items())
        super().__init__(f"none of the log directories can be used: {why}")
        self.reasons = reasons


class LogDirectoryLocked(LogDirectoryError):
    """Another broker has it open."""

    def __init__(self, log_dir: str) -> None:
        super().__init__(f"{log_dir}: its .lock is held, so another broker uses this log directory; stop that one or set another log.dirs")
        self.log_dir = log_dir


class DuplicateLogDirectory(LogDirectoryError):
    """`log.dirs` names one directory twice."""

    def __init__(self, log_dir: str) -> None:
        super().__init__(f"{log_dir} is twice in log.dirs")
        self.log_dir = log_dir


class InvalidMetaProperties(LogDirectoryError):
    """A `meta.properties` that violates its format."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class InconsistentClusterId(LogDirectoryError):
    """The directory belongs to another cluster."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(
            f"{path}: cluster.id is {found}, but the cluster's is {expected}. The directory belongs to another cluster: "
            "check zookeeper.connect, or set another log.dirs"
        )
        self.path = path
        self.expected = expected
        self.found = found


class InconsistentBrokerId(LogDirectoryError):
    """The directory belongs to another broker."""

    def __init__(self, path: str, expected: int, found: int) -> None:
        super().__init__(
            f"{path}: broker.id is {found}, but this broker's is {expected}. If the data was moved, set broker.id={found}; "
            "for a new broker use empty log directories"
        )
        self.path = path
        self.expected = expected
        self.found = found


class DuplicateDirectoryId(LogDirectoryError):
    """Two directories have the same `directory.id`: one is a copy of the other."""

    def __init__(self, directory_id: str, first: str, second: str) -> None:
        super().__init__(
            f"directory.id {directory_id} is in {first} and in {second}. One is a copy of the other: remove the copy from log.dirs"
        )
        self.directory_id = directory_id
        self.first = first
        self.second = second


class ForeignDirectory(LogDirectoryError):
    """A log directory contains a directory that is not a partition's."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: its name is not that of a partition (topic-partition, or topic-partition.id with -delete, -future or -stray). "
            "A log directory may hold nothing else: move it away"
        )
        self.path = path


class LoadingStopped(LogDirectoryError):
    """The broker was stopped while it opened its logs."""

    def __init__(self) -> None:
        super().__init__("the broker was stopped before all logs were open")


class DuplicateLog(LogDirectoryError):
    """Two directories hold the same partition."""

    def __init__(self, partition: str, first: str, second: str) -> None:
        super().__init__(
            f"{partition} is in {first} and in {second}. A log directory failed while the replica moved between them: "
            "delete the one in the directory that failed"
        )
        self.partition = partition
        self.first = first
        self.second = second
