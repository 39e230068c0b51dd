"""Directories of ephemeral brokers: those that killed ones left behind are removed, those in use stay."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from ottla.ephemeral.settings import PREFIX, Ephemeral, remove_abandoned

NO_PROCESS = 2**30
"""More than a process id can be."""


def a_directory(folder: Path, process_id: int, name: str) -> Path:
    made = folder / f"{PREFIX}{process_id}-{name}"
    (made / "data").mkdir(parents=True)
    return made


def test_directories_of_killed_brokers_are_removed_and_those_in_use_stay(tmp_path: Path) -> None:
    abandoned = a_directory(tmp_path, NO_PROCESS, "abandoned")
    of_another_container = a_directory(tmp_path, NO_PROCESS, "locked")
    running = a_directory(tmp_path, os.getpid(), "running")
    foreign = tmp_path / f"{PREFIX}of-another-program"
    foreign.mkdir()
    descriptor = os.open(of_another_container, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        remove_abandoned(tmp_path)
    finally:
        os.close(descriptor)
    assert sorted(tmp_path.iterdir()) == sorted([of_another_container, running, foreign])
    assert not abandoned.exists()


def test_the_directory_of_a_broker_is_locked_until_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broker = Ephemeral({})
    (directory,) = tmp_path.iterdir()
    descriptor = os.open(directory, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    broker.close()
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
    assert list(tmp_path.iterdir()) == []
