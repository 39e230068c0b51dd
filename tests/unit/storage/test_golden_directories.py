"""Whole log directories that Apache Kafka 3.9.1 left, opened by LogManager: after clean stops, after kills, and again after ours."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from ottla.storage.disk.directory_names import parse_directory_name
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.disk.leader_epochs import LEADER_EPOCH_CHECKPOINT, encode_leader_epochs, read_leader_epochs
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.producers.snapshot import decode_snapshot
from tests.support.golden_logs import LOGS
from tests.support.log_manager import Disks
from tests.support.logs import read_all

SETS = ["clean", "killed", "recovered", "expired", "live"]
RECORDED_AT = 1_795_218_410_536
CLEAN_MARKED = ["clean", "expired"]


def a_copy(name: str, tmp_path: Path) -> Disks:
    """A log directory as it was left, of a broker with the clock of that day."""
    data = tmp_path / "data"
    shutil.copytree(LOGS / name, data, ignore=shutil.ignore_patterns("*.json"))
    for partition in data.iterdir():
        manifest = LOGS / name / f"{partition.name}.json"
        if partition.is_dir() and parse_directory_name(partition.name) is None:
            shutil.rmtree(partition)
        assert not partition.is_dir() or manifest.exists()
    disks = Disks(RealFileSystem(), str(data))
    disks.clock.move(RECORDED_AT - disks.clock.now_ms())
    for manifest in (LOGS / name).glob("*.json"):
        described = json.loads(manifest.read_text())
        disks.topics[described["topic"]] = described.get("topic_config") or {}
    return disks


def manifest_of(name: str, log: PartitionLog) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((LOGS / name / f"{log.topic_partition}.json").read_text())
    return manifest


def checkpoint(name: str, file: str) -> dict[TopicPartition, int]:
    return OffsetCheckpoint(str(LOGS / name), file, RealFileSystem()).read()


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_every_log_opens_and_holds_what_its_manifest_says(name: str, tmp_path: Path) -> None:
    disks = a_copy(name, tmp_path)
    manager = disks.start()
    partitions = [path.name for path in (LOGS / name).iterdir() if path.is_dir()]
    assert sorted(str(log.topic_partition) for log in manager.all_logs()) == sorted(partitions)
    assert manager.directories[disks.log_dirs].had_clean_shutdown == (name in CLEAN_MARKED)
    start_offsets = checkpoint(name, LOG_START_OFFSET_CHECKPOINT)
    high_watermarks = checkpoint(name, HIGH_WATERMARK_CHECKPOINT)
    for log in manager.all_logs():
        manifest = manifest_of(name, log)
        batches = [batch for file in manifest["files"].values() for batch in file.get("batches", ())]
        if batches:
            assert log.log_end_offset == max(batch["last_offset"] for batch in batches) + 1
        first = min(int(file[:20]) for file in manifest["files"] if file.endswith(".log"))
        assert log.log_start_offset == start_offsets.get(log.topic_partition, first)
        expected = min(high_watermarks.get(log.topic_partition, 0), log.log_end_offset)
        assert log.high_watermark == max(expected, log.log_start_offset)
        metadata = manifest["files"]["partition.metadata"]["text"]
        assert (Path(log.directory) / "partition.metadata").read_text() == metadata
        assert log.topic_id != bytes(16)
    manager.shutdown()


@pytest.mark.parametrize("name", CLEAN_MARKED)
def test_a_start_and_a_stop_change_no_file_of_a_partition(name: str, tmp_path: Path) -> None:
    disks = a_copy(name, tmp_path)
    manager = disks.start()
    bounds = {str(log.topic_partition): (log.log_start_offset, log.log_end_offset) for log in manager.all_logs()}
    disks.settle()
    manager.shutdown()
    for directory in [path for path in (LOGS / name).iterdir() if path.is_dir()]:
        theirs = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".deleted"}
        start, end = bounds[directory.name]
        # What Apache Kafka does at its next start too: snapshots of earlier stops and those at the log start go, and so does an epoch in
        # which nothing was written.
        snapshots = sorted(file for file in theirs if file.endswith(".snapshot"))
        stray = [file for file in snapshots if file.replace("snapshot", "log") not in theirs][:-1]
        for file in stray + [file for file in snapshots if int(file[:20]) <= start]:
            del theirs[file]
        ours = {path.name: path.read_bytes() for path in (Path(disks.log_dirs) / directory.name).iterdir()}
        written = [entry for entry in read_leader_epochs(str(directory / LEADER_EPOCH_CHECKPOINT), RealFileSystem()) if entry[1] < end]
        theirs[LEADER_EPOCH_CHECKPOINT] = encode_leader_epochs(written)
        assert ours == theirs, directory.name


@pytest.mark.parametrize("name", CLEAN_MARKED)
def test_checkpoints_after_our_stop_say_of_these_logs_what_kafkas_did(name: str, tmp_path: Path) -> None:
    disks = a_copy(name, tmp_path)
    disks.start().shutdown()
    served = {parse_directory_name(path.name) for path in (LOGS / name).iterdir() if path.is_dir()}
    partitions = {parsed[0] for parsed in served if parsed is not None}
    for file in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        ours = OffsetCheckpoint(disks.log_dirs, file, disks.filesystem).read()
        theirs = {partition: offset for partition, offset in checkpoint(name, file).items() if partition in partitions}
        assert ours == theirs, file
    assert (Path(disks.log_dirs) / ".kafka_cleanshutdown").read_bytes() == (LOGS / "clean" / ".kafka_cleanshutdown").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_after_our_clean_stop_nothing_needs_recovery(name: str, tmp_path: Path) -> None:
    disks = a_copy(name, tmp_path)
    first = disks.start()
    found = {log.topic_partition: (log.log_start_offset, log.log_end_offset, read_all(log)) for log in first.all_logs()}
    producers = {log.topic_partition: list(map(repr, log.active_producers())) for log in first.all_logs()}
    first.shutdown()
    second = disks.start()
    assert second.directories[disks.log_dirs].had_clean_shutdown
    assert {log.topic_partition: (log.log_start_offset, log.log_end_offset, read_all(log)) for log in second.all_logs()} == found
    assert {each: len(entries) for each, entries in producers.items()} == {
        log.topic_partition: len(log.active_producers()) for log in second.all_logs()
    }
    second.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_a_crash_loses_nothing_of_what_stood_there(name: str, tmp_path: Path) -> None:
    disks = a_copy(name, tmp_path)
    first = disks.start()
    found = {log.topic_partition: read_all(log) for log in first.all_logs()}
    disks.settle()
    disks.crash(first)
    second = disks.start()
    assert not second.directories[disks.log_dirs].had_clean_shutdown
    assert {log.topic_partition: read_all(log) for log in second.all_logs()} == found
    second.shutdown()


def test_the_open_transaction_of_a_killed_broker_is_open_still(tmp_path: Path) -> None:
    disks = a_copy("killed", tmp_path)
    manager = disks.start()
    (log,) = [log for log in manager.all_logs() if log.topic_partition.topic == "log-txn-open"]
    path = LOGS / "killed" / "log-txn-open-0" / "00000000000000000007.snapshot"
    open_offsets = [entry.current_txn_first_offset for entry in decode_snapshot(path.read_bytes(), str(path))]
    assert log.producer_state.state.first_unstable_offset == max(open_offsets)
    assert log.last_stable_offset <= max(open_offsets)
    manager.shutdown()
