"""Directories and files that Ottla makes are for its user and its group alone; those that exist keep their modes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.integration.test_cli_cluster import a_detached_cluster
from tests.support.broker_process import a_broker
from tests.support.command_line import CommandLine


def modes_below(folder: Path) -> dict[str, int]:
    """The modes of the folder and all below it, by path. Sockets are no files, nor is what a broker renames or removes meanwhile."""
    found = {"": stat.S_IMODE(folder.stat().st_mode)}
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
            found[str(path.relative_to(folder))] = stat.S_IMODE(status.st_mode)
    return found


def wrong_modes(folder: Path) -> dict[str, str]:
    """The modes with more rights than 0750 and 0640, by path."""
    allowed = {True: 0o750, False: 0o640}
    return {name: oct(mode) for name, mode in modes_below(folder).items() if mode & ~allowed[(folder / name).is_dir()]}


def fill(bootstrap: str) -> None:
    """Makes logs, indexes, checkpoints and snapshots: of a topic in several segments, and of a group."""
    ottla = CommandLine(bootstrap)
    ottla("topics", "create", "orders", "--partitions", "2", "--config", "segment.bytes=200")
    for number in range(4):
        ottla("produce", "orders", input=f"{number}\n" * 20)
    ottla("consume", "orders", "--group", "g", "-e")


def test_a_broker_makes_its_files_for_its_group(tmp_path: Path) -> None:
    data = tmp_path / "parent" / "data"
    with a_broker(tmp_path, log_dirs=str(data)) as broker:
        fill(broker.bootstrap)
        running = wrong_modes(data.parent)
        assert broker.stop() == 0
        names = {path.suffix for path in data.rglob("*")}
        assert (running, wrong_modes(data.parent)) == ({}, {})
        assert names >= {".log", ".index", ".timeindex", ".snapshot", ".metadata"}
        broker.start()
        assert wrong_modes(data.parent) == {}


def test_existing_directories_and_files_keep_their_modes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with a_broker(tmp_path, log_dirs=str(data)) as broker:
        fill(broker.bootstrap)
        broker.stop()
        data.chmod(0o755)
        for path in data.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        before = modes_below(data)
        segments = {name for name in before if name.endswith((".log", "index"))}
        broker.start()
        CommandLine(broker.bootstrap)("produce", "orders", input="1\n")
        after = modes_below(data)
        assert after[""] == 0o755
        assert {name: after[name] for name in segments} == {name: before[name] for name in segments}
        assert {mode for name, mode in after.items() if (data / name).is_dir()} == {0o755}


@pytest.mark.cluster
def test_a_cluster_makes_its_files_for_its_group(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with a_detached_cluster(tmp_path / "parent" / "cluster", "2", "--console") as cluster:
            assert wrong_modes(tmp_path / "parent") == {}
            assert {"supervisor.log", "console.log"} <= {path.name for path in cluster.directory.iterdir()}
    finally:
        os.umask(before)
