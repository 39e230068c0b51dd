"""Log directories that Apache Kafka 3.9.1 wrote: opened, read, recovered, closed; and written again, byte by byte the same."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.cursors import fields
from ottla.protocol.records.batch import CONTROL_MASK, TIMESTAMP_TYPE_MASK, iter_batches
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.disk.checkpoint import RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.log.context import DAY_MS
from ottla.storage.log.lookups import aborted_transactions, offset_for_timestamp, offset_of_max_timestamp
from ottla.storage.log.origins import AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from ottla.storage.validation.run import BatchRun
from tests.support.clocks import ManualClock
from tests.support.golden_logs import LOGS
from tests.support.logs import a_context, a_topic_config, follow, read_all

BROKER = {"log.index.size.max.bytes": "1024"}  # as on the recorded brokers
RECORDED_AT = 1_795_218_410_536  # producers whose timestamps are their record's were idle for more than a day by then
ALL = [f"{manifest.parent.name}/{manifest.name.removesuffix('.json')}" for manifest in sorted(LOGS.glob("*/*.json"))]
CLEAN = [name for name in ALL if name.startswith(("clean/", "recovered/", "expired/"))]
CRASHED = [name for name in ALL if name.startswith(("killed/", "live/"))]

# Everything in these was appended by producers, in one go, by one leader; nothing was compacted, deleted or expired since.
WRITTEN_ONCE = [
    "clean/log-append-time-0",
    "clean/log-append-time-lz4-0",
    "clean/log-gzip-0",
    "clean/log-idempotent-0",
    "clean/log-lz4-0",
    "clean/log-plain-0",
    "clean/log-segments-0",
    "clean/log-snappy-0",
    "clean/log-txn-0",
    "clean/log-zstd-0",
]


@cache
def _manifest(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((LOGS / f"{name}.json").read_text())
    return manifest


def _open(name: str, tmp_path: Path, *, clean: bool, start: int | None = None, recovery_point: int = 0) -> PartitionLog:
    manifest = _manifest(name)
    shutil.copytree(LOGS / name, tmp_path / "log")
    first = min(int(file[:20]) for file in manifest["files"] if file.endswith(".log"))
    return open_log(
        a_context(RealFileSystem(), ManualClock(RECORDED_AT)),
        TopicPartition(manifest["topic"], manifest["partition"]),
        str(tmp_path),
        a_topic_config(manifest.get("topic_config") or {}, BROKER),
        directory=str(tmp_path / "log"),
        clean_shutdown=clean,
        log_start_offset=first if start is None else start,
        recovery_point=recovery_point,
    )


@pytest.fixture(scope="module", params=ALL)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, PartitionLog]:
    """Each log by its name, opened once for all tests that only read it."""
    name: str = request.param
    return name, _open(name, tmp_path_factory.mktemp("golden"), clean=name in CLEAN)


def _log_bytes(name: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((LOGS / name).glob("*.log")))


def _last_offset(manifest: dict[str, Any]) -> int:
    batches = [batch for file in manifest["files"].values() for batch in file.get("batches", ())]
    return max((batch["last_offset"] for batch in batches), default=-1)


@pytest.mark.slow
def test_a_log_of_apache_kafka_is_read_to_the_last_byte(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    manifest = _manifest(name)
    if _log_bytes(name):
        assert log.log_end_offset == _last_offset(manifest) + 1
    assert read_all(log) == _log_bytes(name)
    assert read_all(log, max_bytes=100) == _log_bytes(name)


@pytest.mark.slow
def test_every_offset_leads_to_its_batch(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    for file in _manifest(name)["files"].values():
        for batch in file.get("batches", ()):
            for offset in range(batch["base_offset"], batch["last_offset"] + 1):
                region = log.read(offset, 1, log.log_end_offset, True).region
                assert region is not None
                assert [header.base_offset for _, header in iter_batches(region.read())] == [batch["base_offset"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_opening_and_closing_changes_no_segment(name: str, tmp_path: Path) -> None:
    _open(name, tmp_path, clean=True).close()
    for path in sorted((LOGS / name).iterdir()):
        if path.name.endswith((".log", ".index", ".timeindex", ".txnindex")):
            assert (tmp_path / "log" / path.name).read_bytes() == path.read_bytes(), path.name


COMPACTED = ("compact", "__")


# The cleaner indexes by the megabyte that it writes, recovery by the batch; log-txn-open was appended to after its recovery.
@pytest.mark.parametrize("name", [name for name in CLEAN if not any(word in name for word in (*COMPACTED, "recovered/log-txn-open"))])
def test_recovery_makes_the_same_indexes(name: str, tmp_path: Path) -> None:
    log = _open(name, tmp_path, clean=False)
    log.close()
    for path in sorted((LOGS / name).iterdir()):
        if path.name.endswith((".log", ".index", ".timeindex", ".txnindex")):
            ours = (tmp_path / "log" / path.name).read_bytes()
            assert ours == path.read_bytes(), path.name


@pytest.mark.parametrize("name", CRASHED)
def test_a_killed_log_gets_the_indexes_that_it_had_in_memory(name: str, tmp_path: Path) -> None:
    log = _open(name, tmp_path, clean=False)
    log.close()
    for file, content in _manifest(name)["files"].items():
        if file.endswith(".index"):
            ours = (tmp_path / "log" / file).read_bytes()
            theirs = (LOGS / name / file).read_bytes()[: 8 * len(content["entries"])]
            assert ours == theirs, file


@pytest.mark.parametrize("name", ["idempotent-0", "lz4-0", "plain-0", "segments-0"])  # the others were appended to after it
def test_recovery_leaves_what_the_recovery_of_apache_kafka_leaves(name: str, tmp_path: Path) -> None:
    recovered = f"recovered/log-{name}"
    checkpoint = OffsetCheckpoint(str(LOGS / "killed"), RECOVERY_POINT_CHECKPOINT, RealFileSystem()).read()
    log = _open(f"killed/log-{name}", tmp_path, clean=False, recovery_point=checkpoint.get(TopicPartition(f"log-{name[:-2]}", 0), 0))
    log.close()
    for path in sorted((LOGS / recovered).iterdir()):
        if path.name.endswith((".log", ".index", ".timeindex", ".txnindex", ".snapshot")):
            assert (tmp_path / "log" / path.name).read_bytes() == path.read_bytes(), path.name


def _empty_log(name: str, directory: Path) -> PartitionLog:
    """A new log for what the recorded one has, with the configuration of its topic."""
    manifest = _manifest(name)
    return open_log(
        a_context(RealFileSystem(), ManualClock(RECORDED_AT)),
        TopicPartition(manifest["topic"], manifest["partition"]),
        str(directory.parent),
        a_topic_config(manifest.get("topic_config") or {}, BROKER),
        directory=str(directory),
        is_new=True,
    )


@pytest.mark.parametrize("name", WRITTEN_ONCE)
def test_what_apache_kafka_wrote_is_written_again_byte_by_byte(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    log = _empty_log(name, directory)
    data = bytearray(_log_bytes(name))
    for position, header in list(iter_batches(data)):
        records = memoryview(data)[position : position + header.size]
        fields.stamp(records, 0, 0, header.batch_length, -1)
        origin = AppendOrigin.COORDINATOR if header.attributes & CONTROL_MASK else AppendOrigin.CLIENT
        now_ms = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else 1_700_000_100_000
        run = BatchRun(records)
        run.read(0)
        run.takes_log_append_time = header.attributes & TIMESTAMP_TYPE_MASK != 0
        run.accept(header.max_timestamp)
        log.append(run, header.partition_leader_epoch, now_ms, origin)
        assert (run.first_offset, run.last_offset) == (header.base_offset, header.last_offset)
        log.update_high_watermark(log.log_end_offset)
    log.close()
    written = {path.name: path.read_bytes() for path in directory.iterdir()}
    golden = {path.name: path.read_bytes() for path in (LOGS / name).iterdir() if path.name != "partition.metadata"}
    assert written == golden


@pytest.mark.parametrize("name", ["clean/log-txn-0", "clean/log-lz4-0", "clean/log-segments-0", "clean/log-idempotent-0"])
def test_a_follower_of_apache_kafka_writes_the_same_files(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    log = _empty_log(name, directory)
    data = _log_bytes(name)
    for position, header in iter_batches(data):
        follow(log, memoryview(data)[position : position + header.size], 5)
        log.update_high_watermark(log.log_end_offset)
    log.close()
    written = {path.name: path.read_bytes() for path in directory.iterdir()}
    golden = {path.name: path.read_bytes() for path in (LOGS / name).iterdir() if path.name != "partition.metadata"}
    assert written == golden


def test_producers_and_aborted_transactions_are_those_of_the_manifest(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    manifest = _manifest(name)
    aborted = [entry for file in manifest["files"].values() for entry in file.get("aborted", ())]
    found = aborted_transactions(log, 0, log.log_end_offset)
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in found] == [
        (each["producer_id"], each["first_offset"], each["last_offset"]) for each in aborted
    ]
    newest = manifest["files"].get(f"{log.log_end_offset:020d}.snapshot", {"producers": []})
    young = {each["producer_id"]: each["last_sequence"] for each in newest["producers"] if RECORDED_AT - each["timestamp"] < DAY_MS}
    assert {entry.producer_id: entry.last_sequence for entry in log.active_producers()}.items() >= young.items()


@pytest.mark.slow
def test_readers_of_committed_records_are_told_at_every_offset_what_apache_kafka_recorded(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    manifest = _manifest(name)
    log.update_high_watermark(log.log_end_offset)
    undecided: dict[int, int] = {}
    for batch in (batch for file in sorted(manifest["files"]) for batch in manifest["files"][file].get("batches", ())):
        if batch["control"]:
            undecided.pop(batch["producer_id"], None)
        elif batch["transactional"]:
            undecided.setdefault(batch["producer_id"], batch["base_offset"])
    assert log.last_stable_offset == max(min([*undecided.values(), log.log_end_offset]), log.log_start_offset)
    aborted = [entry for file in manifest["files"].values() for entry in file.get("aborted", ())]
    for offset in range(log.log_start_offset, log.last_stable_offset):
        found = log.read(offset, 1, log.last_stable_offset, True)
        told = [(each.producer_id, each.first_offset) for each in aborted_transactions(log, offset, found.next_offset)]
        assert told == [
            (each["producer_id"], each["first_offset"])
            for each in aborted
            if each["last_offset"] >= offset and each["first_offset"] < found.next_offset
        ]


@pytest.mark.slow
def test_a_search_by_timestamp_finds_the_first_record_that_is_not_older(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    manifest = _manifest(name)
    batches = [batch for file in manifest["files"].values() for batch in file.get("batches", ())]
    records = [(record["timestamp"], record["offset"]) for batch in batches for record in batch["records"]]
    for asked in sorted({timestamp + delta for timestamp, _ in records for delta in (-1, 0, 1)}):
        found = offset_for_timestamp(log, asked)
        expected = next(((timestamp, offset) for timestamp, offset in records if timestamp >= asked), None)
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert (found.timestamp, found.offset) == expected
    latest = offset_of_max_timestamp(log)
    if records:
        assert latest is not None
        assert latest.timestamp == max(timestamp for timestamp, _ in records)
