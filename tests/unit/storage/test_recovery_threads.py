"""num.recovery.threads.per.data.dir: how many threads open and close the logs changes nothing but how long that takes."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.storage.disk.directory_names import parse_directory_name
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.start_errors import LoadingStopped
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.manager import log_loading
from ottla.storage.manager.log_manager import LogManager
from tests.support.golden_logs import LOGS
from tests.support.log_manager import CLUSTER_ID, Disks
from tests.support.logs import read_all

WHEN_RECORDED = 1_795_218_410_536
THREADS = "num_recovery_threads_per_data_dir"


def two_directories(tmp_path: Path, filesystem: RealFileSystem | None = None) -> Disks:
    """What a killed Apache Kafka left, half of its logs in another log directory."""
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(LOGS / "killed", first, ignore=shutil.ignore_patterns("*.json"))
    second.mkdir()
    for checkpoint in first.glob("*-checkpoint"):
        shutil.copy(checkpoint, second)
    partitions = sorted(path for path in first.iterdir() if path.is_dir())
    for partition in partitions:
        if parse_directory_name(partition.name) is None:
            shutil.rmtree(partition)
    for partition in [path for path in partitions if path.exists()][::2]:
        partition.rename(second / partition.name)
    disks = Disks(filesystem or RealFileSystem(), f"{first},{second}")
    disks.clock.move(WHEN_RECORDED - disks.clock.now_ms())
    return disks


def found_in(manager: LogManager) -> dict[str, Any]:
    return {
        str(log.topic_partition): (
            (log.log_start_offset, log.log_end_offset, log.recovery_point, log.high_watermark),
            log.leader_epochs.entries,
            sorted(log.producer_state.state.producers),
            read_all(log),
        )
        for log in manager.all_logs()
    }


def files_in(tmp_path: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3, 64])
def test_any_number_of_threads_leaves_the_same_logs(threads: int, tmp_path: Path) -> None:
    left: list[tuple[dict[str, Any], dict[str, bytes]]] = []
    for number in (1, threads):
        place = tmp_path / f"by {number}"
        disks = two_directories(place)
        manager = disks.start(**{THREADS: number})
        found = found_in(manager)
        manager.shutdown()
        left.append((found, files_in(place)))
    assert len(left[0][0]) > 10
    assert left[0][0] == left[1][0]
    assert left[0][1].keys() == left[1][1].keys()
    assert [name for name, content in left[0][1].items() if content != left[1][1][name] and not name.endswith("meta.properties")] == []


def test_damage_in_one_directory_is_found_by_any_thread_and_the_other_directory_serves(tmp_path: Path) -> None:
    disks = two_directories(tmp_path)
    damaged = sorted(path for path in (tmp_path / "second").iterdir() if path.is_dir())[-1] / "leader-epoch-checkpoint"
    damaged.write_bytes(b"0\n1\nnone 0\n")
    manager = disks.start(**{THREADS: 4})
    assert manager.offline_log_dirs == [str(tmp_path / "second")]
    assert {log.log_dir for log in manager.all_logs()} == {str(tmp_path / "first")}
    assert str(damaged) in str(manager.directories[str(tmp_path / "second")].failure)
    manager.shutdown()


class WaitsForCompany(RealFileSystem):
    """Lists the directory of a partition only when as many threads as there may be want to do that at once."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._company = threading.Barrier(threads)
        self._seen: set[int] = set()

    def list_directory(self, path: str) -> list[str]:
        if parse_directory_name(Path(path).name) is not None and threading.get_ident() not in self._seen:
            self._seen.add(threading.get_ident())
            self._company.wait(60)
        return super().list_directory(path)


def test_each_directory_has_as_many_threads_as_are_configured(tmp_path: Path) -> None:
    disks = two_directories(tmp_path, WaitsForCompany(threads=2 * 3))
    manager = disks.start(**{THREADS: 3})
    assert not manager.offline_log_dirs
    manager.shutdown()


def test_a_start_that_is_stopped_opens_no_other_log_and_the_next_one_finds_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = two_directories(tmp_path)
    stopped, open_log = disks.a_manager(**{THREADS: 1}), log_loading.open_log
    opened: list[PartitionLog] = []

    def stopping(*arguments: Any, **named: Any) -> PartitionLog:
        opened.append(open_log(*arguments, **named))
        stopped.stop_loading()
        return opened[-1]

    stopped.open()
    stopped.identify(CLUSTER_ID, 0)
    with monkeypatch.context() as patch, pytest.raises(LoadingStopped):
        patch.setattr(log_loading, "open_log", stopping)
        stopped.load()
    assert 1 <= len(opened) <= 2  # one thread for each directory
    assert all(log.is_closed for log in opened)
    assert not len(stopped)
    manager = disks.start()
    assert len(manager) > 10
    manager.shutdown()
