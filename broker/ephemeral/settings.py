"""Chooses the configuration and the directory of an ephemeral broker, and removes what killed ones left behind."""

from __future__ import annotations

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
        if "log.dirs" not in given and "log.dir" not in given:
            import tempfile  # takes longer than other imports, and a test suite names the directories

            remove_abandoned(Path(tempfile.gettempdir()))
            self._directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
            self.properties["log.dirs"] = str(self._directory / "data")

    def close(self) -> None:
        """Remove the directory, unless the configuration named it."""
        if self._directory is not None:
            _remove(self._directory)


def remove_abandoned(folder: Path) -> None:
    """Remove the directories of brokers whose process was killed."""
    for path in folder.glob(f"{PREFIX}*"):
        found = re.match(r"(\d+)-", path.name.removeprefix(PREFIX))
        if found is not None and not Path(f"/proc/{found[1]}").exists() and Path("/proc/self").exists():
            _remove(path)


def _remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)
