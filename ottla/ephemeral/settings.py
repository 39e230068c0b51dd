"""Chooses the configuration and the directory of an ephemeral broker, and removes the directories of killed ones."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PREFIX: Final = "ottla-ephemeral-"

DEFAULTS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "broker.id": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "100",
}
"""Settings that make tests fast; the file, the environment and `--set` override them."""


class Ephemeral:
    """The directory of one broker. `properties` has its configuration."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Makes a directory unless the configuration names one. Raises OSError."""
        self.properties = {**DEFAULTS, **given}
        self._directory: Path | None = None
        self._lock: int | None = None
        if "log.dirs" not in given and "log.dir" not in given:
            import tempfile  # takes longer than other imports, and a test suite names the directories

            remove_abandoned(Path(tempfile.gettempdir()))
            self._directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
            self._lock = _locked(self._directory)
            self.properties["log.dirs"] = str(self._directory / "data")

    def close(self) -> None:
        """Remove the directory, unless the configuration named it."""
        if self._directory is not None:
            _remove(self._directory)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(folder: Path) -> None:
    """Remove the directories of brokers whose process was killed.

    A locked directory is in use by a process of another container, whose process id is not valid here.
    """
    for path in folder.glob(f"{PREFIX}*"):
        found = re.match(r"(\d+)-", path.name.removeprefix(PREFIX))
        if found is None or Path(f"/proc/{found[1]}").exists() or not Path("/proc/self").exists():
            continue
        lock = _locked(path)
        if lock is not None:
            _remove(path)
            os.close(lock)


def _locked(directory: Path) -> int | None:
    """A descriptor that locks the directory until it is closed; None if another process has locked it, or if it cannot be opened."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)
