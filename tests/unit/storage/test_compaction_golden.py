"""Logs as Apache Kafka's cleaner left them: from what was produced our cleaner makes the same files.

The batches that the producers sent are built again from the manifests; those that the cleaner left whole are taken from the recorded log.
"""

import json
from collections.abc import Iterator
from typing import Any

from ottla.protocol.records.batch import CODEC_MASK, BatchHeader, iter_batches
from ottla.protocol.records.reader import Record, iter_records
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log.recovery import open_log
from tests.support.batches import a_batch
from tests.support.cleaners import clean_log
from tests.support.clocks import ManualClock
from tests.support.golden_logs import LOGS
from tests.support.logs import LOG_DIR, T0, a_context, a_topic_config, follow

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
BROKER = {"log.index.size.max.bytes": "1024"}
DAY_AFTER_MS = 1_795_300_000_000
Files = dict[str, bytes]


def _manifest(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((LOGS / f"{name}.json").read_text())
    return manifest


def _recorded_files(name: str) -> Files:
    return {
        path.name: path.read_bytes()
        for path in sorted((LOGS / name).iterdir())
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    }


def _recorded_batches(name: str) -> dict[int, bytes]:
    """The batches that are left, by base offset."""
    return {
        header.base_offset: data[position : position + header.size]
        for file, data in _recorded_files(name).items()
        if file.endswith(".log")
        for position, header in iter_batches(data)
    }


def _produced(name: str) -> dict[int, Record]:
    records = [
        Record(each["offset"], each["timestamp"], _bytes(each["key"]), _bytes(each["value"])) for each in _manifest(name)["produced"]
    ]
    return {record.offset: record for record in records}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _before_cleaning(name: str, batches: list[tuple[int, int]], **how: Any) -> PartitionLog:
    """A log of batches with these offsets, appended as a follower does."""
    produced, recorded = _produced(name), _recorded_batches(name)
    producers = how.pop("producers", {})
    log = open_log(a_context(clock=ManualClock(DAY_AFTER_MS)), T0, LOG_DIR, a_topic_config(_manifest(name)["topic_config"], BROKER))
    for first, last in batches:
        if first in produced:
            records = [produced[offset] for offset in range(first, last + 1)]
            batch = a_batch(records, base_offset=first, leader_epoch=0, **how, **producers.get(first, {}))
        else:
            batch = bytearray(recorded[first])  # a marker
        follow(log, batch, 0)
    log.update_high_watermark(log.log_end_offset)
    return log


def _files(log: PartitionLog) -> Files:
    filesystem = log.context.filesystem
    names = [name for name in filesystem.list_directory(log.directory) if name.endswith(SUFFIXES)]
    return {name: filesystem.read_file(f"{log.directory}/{name}") for name in names}


def _cleaned(files: Files, active: int) -> Files:
    return {name: data for name, data in files.items() if int(name[:20]) < active}


def _content(files: Files) -> Iterator[tuple[str, BatchHeader, list[Record]]]:
    """Headers without what depends on the compressor, and records."""
    for name, data in files.items():
        if name.endswith(".log"):
            for position, header in iter_batches(data):
                yield name, header._replace(batch_length=0, crc=0), list(iter_records(data, position, header))


def test_superseded_records_go_and_the_batches_around_them_stay() -> None:
    name = "clean/log-compact-0"
    log = _before_cleaning(name, [(0, 4), (5, 9), (10, 15), (16, 20), (21, 25), (26, 30)])
    assert log.segments.bases == [0, 10, 21]
    assert clean_log(log).end_offset == 21
    assert _cleaned(_files(log), 21) == _cleaned(_recorded_files(name), 21)


def test_compressed_batches_are_compressed_again() -> None:
    name = "clean/log-compact-gzip-0"
    log = _before_cleaning(name, [(at, at + 3) for at in range(0, 24, 4)], codec="gzip")
    assert clean_log(log).end_offset == 20
    ours, theirs = _cleaned(_files(log), 20), _cleaned(_recorded_files(name), 20)
    assert list(_content(ours)) == list(_content(theirs))
    assert [(file, data) for file, data in ours.items() if not file.endswith(".log")] == [
        (file, data) for file, data in theirs.items() if not file.endswith(".log")
    ]


def test_aborted_records_go_and_the_markers_stay_with_their_index_entries() -> None:
    name = "clean/log-compact-txn-0"
    one, other = {"producer_id": 1, "transactional": True}, {"producer_id": 1002, "transactional": True}
    producers = {first + which: {**who, "base_sequence": first // 4} for first in range(0, 20, 4) for which, who in enumerate((one, other))}
    log = _before_cleaning(name, [(at, at) for at in range(24)], producers=producers)
    assert log.segments.bases == [0, 2, 11, 20]
    assert clean_log(log).end_offset == 20
    assert _cleaned(_files(log), 20) == _cleaned(_recorded_files(name), 20)


def test_tombstones_get_a_delete_horizon() -> None:
    name = "live/log-tombstone-0"
    log = _before_cleaning(name, [(0, 3), (4, 7), (8, 11), *((at, at) for at in range(12, 18))], codec="lz4")
    horizon_ms = next(header.delete_horizon_ms for _, header, _ in _content(_recorded_files(name)) if header.has_delete_horizon)
    assert horizon_ms is not None
    assert clean_log(log, now_ms=horizon_ms - 3_600_000).end_offset == 17
    # The fillers had another producer, which did not compress.
    ours = [(each, header, records) for each, header, records in _content(_cleaned(_files(log), 17)) if header.base_offset < 12]
    theirs = [(each, header, records) for each, header, records in _content(_cleaned(_recorded_files(name), 17)) if header.base_offset < 12]
    assert ours == theirs
    assert ours[0][1].attributes & CODEC_MASK


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    name = "live/log-empty-batch-0"
    producers: dict[int, dict[str, Any]] = {
        0: {"producer_id": 6000},
        2: {"producer_id": 7000, "transactional": True},
        4: {"producer_id": 7000, "transactional": True, "base_sequence": 1},
    }
    batches = [(0, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 9), *((at, at) for at in range(10, 16))]
    log = _before_cleaning(name, batches, producers=producers)
    assert clean_log(log).end_offset == 15
    assert _cleaned(_files(log), 15) == _cleaned(_recorded_files(name), 15)
