"""Sound directories are found sound, and every kind of damage is found where it is."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import crc32c
import pytest

from ottla.cli.dump import directory_check
from ottla.cli.dump.directory_check import DirectoryReport, check_directory, lock_owner
from ottla.cli.dump.segment_check import MAX_PROBLEMS
from ottla.protocol.records.compression import CompressionCodec
from tests.support.golden_logs import LOGS
from tests.support.odd_batches import framed

SETS = ("clean", "killed", "recovered", "expired", "live", "odd")


def checked(path: Path, *, workers: int = 1) -> DirectoryReport:
    return check_directory(path, workers=workers, progress=lambda done, total: None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one partition of three segments, and what stands beside it."""
    shutil.copytree(LOGS / "clean" / "log-segments-0", tmp_path / "log-segments-0")
    for name in ("meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        shutil.copy(LOGS / "clean" / name, tmp_path)
    return tmp_path


def overwrite(path: Path, at: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(whole)


@pytest.mark.parametrize("name", SETS)
def test_what_apache_kafka_wrote_is_sound(name: str) -> None:
    report = checked(LOGS / name)
    assert report.all_problems == []
    assert not report.is_live
    assert sum(partition.batches for partition in report.partitions) > 5


def test_a_partition_directory_is_checked_by_itself() -> None:
    (partition,) = checked(LOGS / "clean" / "log-segments-0").partitions
    assert (partition.segments, partition.batches, partition.records) == (3, 20, 60)
    assert (partition.start_offset, partition.end_offset) == (0, 60)


def test_a_directory_without_anything_of_a_log_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    (problem,) = checked(tmp_path).all_problems
    assert problem.startswith(f"{tmp_path} is neither a data directory nor a partition's")


def test_a_data_directory_without_partitions_is_sound(data: Path) -> None:
    shutil.rmtree(data / "log-segments-0")
    (data / "recovery-point-offset-checkpoint").unlink()
    (data / "replication-offset-checkpoint").unlink()
    assert checked(data).all_problems == []


def test_worker_processes_find_the_same(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_check, "_WORTH_A_PROCESS_BYTES", 0)
    assert checked(data, workers=2) == checked(data)


def test_a_lock_that_a_broker_holds_is_seen_and_not_disturbed(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert lock_owner(tmp_path / ".lock") is None
    assert lock_owner(tmp_path / "missing") is None


@pytest.mark.parametrize("is_live", [False, True])
def test_segments_that_retention_deletes_during_the_check_are_no_problem_in_a_live_directory(
    data: Path, monkeypatch: pytest.MonkeyPatch, is_live: bool
) -> None:
    # Deleted records have moved the epoch's start. Without a segment the log would seem to end before it.
    epochs = data / "log-segments-0" / "leader-epoch-checkpoint"
    epochs.write_text("0\n1\n0 3\n")
    monkeypatch.setattr(directory_check, "lock_owner", lambda _: 1 if is_live else None)

    def delete_after_listing(done: int, total: int) -> None:
        for file in (data / "log-segments-0").glob("0*"):
            file.unlink()

    report = check_directory(data, workers=1, progress=delete_after_listing)
    assert bool(report.all_problems) != is_live
    assert [partition.segments for partition in report.partitions] == ([0] if is_live else [3])


LOG = "log-segments-0/00000000000000000000.log"


def flip_a_byte_of_a_record(data: Path) -> None:
    overwrite(data / LOG, 100, b"\xff\xff")


def break_a_length(data: Path) -> None:
    overwrite(data / LOG, 151 + 8, struct.pack(">i", 3))


def cut_the_end(data: Path) -> None:
    log = data / "log-segments-0" / "00000000000000000042.log"
    log.write_bytes(log.read_bytes()[:-5])


def repeat_a_batch(data: Path) -> None:
    log = data / LOG
    log.write_bytes(log.read_bytes() + log.read_bytes()[:151])


def point_between_batches(data: Path) -> None:
    overwrite(data / LOG.replace(".log", ".index"), 0, struct.pack(">ii", 5, 150))


def point_behind_the_offset(data: Path) -> None:
    overwrite(data / LOG.replace(".log", ".index"), 0, struct.pack(">ii", 1, 151))


def promise_an_older_time(data: Path) -> None:
    overwrite(data / LOG.replace(".log", ".timeindex"), 0, struct.pack(">qi", 1700000000049, 5))


def promise_a_younger_time(data: Path) -> None:
    overwrite(data / LOG.replace(".log", ".timeindex"), 0, struct.pack(">qi", 1700000000051, 5))


def damage_the_snapshot(data: Path) -> None:
    snapshot = sorted((data / "log-segments-0").glob("*.snapshot"))[-1]
    overwrite(snapshot, 4, b"\xff")


def begin_an_epoch_behind_the_end(data: Path) -> None:
    (data / "log-segments-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 61\n")


def checkpoint_behind_the_end(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nlog-segments 0 61\n")


def break_a_checkpoint(data: Path) -> None:
    (data / "replication-offset-checkpoint").write_text("0\n2\nlog-segments 0 60\n")


def remove_an_index(data: Path) -> None:
    (data / LOG.replace(".log", ".index")).unlink()


def break_the_meta_properties(data: Path) -> None:
    (data / "meta.properties").write_text("version=0\nbroker.id=me\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip_a_byte_of_a_record, "its CRC is not"),
        (break_a_length, "byte 151, after offset 2: Record size 3 is less than the minimum"),
        (cut_the_end, "are not a complete batch"),
        (repeat_a_batch, "its offset must be 21 or later"),
        (point_between_batches, "no batch begins there"),
        (point_behind_the_offset, "the batch there begins with offset 3"),
        (promise_an_older_time, "a record up to there has timestamp 1700000000050"),
        (promise_a_younger_time, "the largest is 1700000000050"),
        (damage_the_snapshot, "its CRC is"),
        (begin_an_epoch_behind_the_end, "epoch 1 begins at offset 61, the log ends at 60"),
        (checkpoint_behind_the_end, "log-segments-0 61, but the log ends at offset 60"),
        (break_a_checkpoint, "line 2 has 2 as the number of entries, but 1 follow"),
        (remove_an_index, "it is missing"),
        (break_the_meta_properties, "broker.id is 'me'"),
    ],
)
def test_damage_is_found(data: Path, damage: Callable[[Path], None], said: str) -> None:
    assert checked(data).all_problems == []
    damage(data)
    problems = checked(data).all_problems
    assert problems
    assert any(said in problem for problem in problems), problems


def test_segments_that_overlap_are_found(data: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        for file in (data / "log-segments-0").glob(f"00000000000000000021{suffix}"):
            shutil.copy(file, file.with_name(f"00000000000000000019{suffix}"))
    assert any("the segment before it ends only before offset" in problem for problem in checked(data).all_problems)


def test_a_file_of_zeros_does_not_flood_the_report(data: Path) -> None:
    log = data / LOG
    log.write_bytes(log.read_bytes()[:151] + bytes(2000))
    assert 0 < len(checked(data).all_problems) < 30


def test_a_batch_of_malformed_records_is_named_with_the_way_around_it(data: Path) -> None:
    whole = bytearray((data / LOG).read_bytes())
    whole[61] = 2  # the length of the first record
    struct.pack_into(">I", whole, 17, crc32c.crc32c(memoryview(whole)[21:151]))
    (data / LOG).write_bytes(whole)
    (problem,) = checked(data).all_problems
    assert "offset 0 to 2: its records cannot be read: " in problem
    assert "consumers of log-segments-0 can go on at offset 3 (" in problem


def test_every_batch_of_malformed_records_is_named(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    count = 2 * MAX_PROBLEMS
    batches = [framed(b"", CompressionCodec.GZIP, base_offset=10 * number) for number in range(count)]
    (partition / f"{0:020d}.log").write_bytes(b"".join(batches))
    problems = [problem for problem in checked(partition).all_problems if "its records cannot be read: " in problem]
    assert [f"go on at offset {10 * number + 10} " in problem for number, problem in enumerate(problems)] == [True] * count
