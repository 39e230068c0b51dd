"""A topic comes back from the remote store alone after all disks were lost."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.server import CannotStart
from ottla.cli.main import main
from ottla.cli.remote.store_access import the_store
from ottla.cli.remote.stored_logs import stored_logs
from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.protocol.records.reader import Record
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.remote.entries import SegmentId
from ottla.storage.remote.ports import IndexKind
from tests.integration.remote.test_copied_and_read import RECORDS, SETTINGS, fill, local_starts, settings
from tests.support.batches import a_batch
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.logs import a_context, a_log, append
from tests.support.remote_reading import copy_closed_segments, files_of, run
from tests.support.remote_stores import PARTITION, a_directory_store, an_entry
from tests.support.several_brokers import until
from tests.unit.storage.remote.test_segment_reader import a_transactional_log

__all__ = ["settings"]


def restore(broker: InProcessBroker, directory: Path, keys: dict[str, str], *words: str) -> Result:
    properties = directory / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
    return CliRunner().invoke(main, ["remote", "restore", "-b", broker.bootstrap, "--config", str(properties), "--json", *words])


def records_of(broker: InProcessBroker, topic: str, partition: int, count: int) -> list[tuple[int, bytes, tuple[int, int]]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Any] = []
    try:

        def has_all() -> bool:
            found.extend(consumer.consume(500, 0.2))
            return len(found) >= count

        until(has_all)
    finally:
        consumer.close()
    return [(each.offset(), each.value(), each.timestamp()) for each in found]


def ends(rows: list[dict[str, Any]]) -> list[int]:
    return [row["end"] for row in rows]


def is_copied(log: PartitionLog) -> bool:
    return log.tier is not None and log.tier.copied.offset + 1 == log.segments.active.base_offset


def test_a_cluster_that_lost_all_its_disks_gets_the_topic_back(settings: dict[str, str], tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path / "logs", **settings) as broker:
        fill(broker, 2)
        until(lambda: min(local_starts(broker, 2)) > RECORDS // 2)
        copied = local_starts(broker, 2)
        found = broker.services.data.replica_manager.partitions["t"]
        until(lambda: broker.run(lambda: all(is_copied(partition.log) for partition in found.values())))  # else a copy is incomplete
    shutil.rmtree(tmp_path / "logs")
    with pytest.raises(CannotStart, match="belongs to the cluster"), a_broker_in_process(tmp_path / "logs", **settings):
        pass
    shutil.rmtree(tmp_path / "logs")
    (tmp_path / "another").mkdir()
    another = {name: f"{tmp_path}/another" if name == "rsm.config.dir" else value for name, value in settings.items()}
    with a_broker_in_process(tmp_path / "logs", **another | {"rsm.config.key.prefix": "another/"}) as broker:
        shown = restore(broker, tmp_path, settings, "t", "--dry-run")
        assert (shown.exit_code, [row["records"] for row in json.loads(shown.stdout)]) == (0, [0, 0])
        assert "t" not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
        done = restore(broker, tmp_path, settings, "t")
        assert done.exit_code == 0, done.output
        rows = json.loads(done.stdout)
        assert all(end >= start for end, start in zip(ends(rows), copied, strict=True))
        for row in rows:
            assert (row["first"], row["records"], row["missing"]) == (0, row["end"], [])
            expected = [(at, (f"{at:05d}" * 100).encode(), (1, 1_700_000_000_000 + at)) for at in range(row["end"])]
            assert records_of(broker, "t", row["partition"], row["end"]) == expected
        again = restore(broker, tmp_path, settings, "t")
        assert again.exit_code == 1
        assert "is not empty" in again.stderr.strip().splitlines()[-1]


def test_copies_of_the_newest_history_make_up_the_log_and_older_ones_on_request(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    store = a_directory_store(tmp_path / "shared")
    log = a_transactional_log(tmp_path)
    keys = {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(tmp_path / "shared")}
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))

    async def story() -> None:
        old = await copy_closed_segments(log, store)
        segment = log.segments.floor(0)
        assert segment is not None
        files = files_of(segment, old[0].end_offset + 1, RealFileSystem())
        new = replace(old[0], id=SegmentId(old[0].id.partition, b"n" * 16), leader_epochs={4: 0})
        await store.copy(new, replace(files, leader_epochs=b"0\n1\n4 0\n"))
        async with the_store(properties) as storage:
            (newest,) = await stored_logs(storage, "orders", None, None)
            assert [each.id.uuid for each in newest.copies] == [new.id.uuid]
            assert len(newest.left_out) == len(old)
            (lost,) = await stored_logs(storage, "orders", None, 0)
            assert [each.start_offset for each in lost.copies] == [each.start_offset for each in old]
            assert not lost.left_out

    run(story)


def test_records_of_another_history_behind_the_end_of_an_epoch_are_not_written(tmp_path: Path) -> None:
    """An unclean election cut records 10 to 19 of epoch 0, which had been copied, and epoch 1 has others."""
    (tmp_path / "shared").mkdir()
    keys = SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(tmp_path / "shared")}
    store = a_directory_store(tmp_path / "shared")

    def a_history(name: str, epochs: list[int], segment_records: int) -> PartitionLog:
        batches = [a_batch([Record(0, 1000 + at, b"key", b"%s-%03d" % (name.encode(), at))]) for at in range(len(epochs))]
        size = segment_records * len(batches[0])
        log = a_log(a_context(RealFileSystem()), log_dir=str(tmp_path / name), segment_bytes=size)
        for batch, epoch in zip(batches, epochs, strict=True):
            append(log, batch, epoch=epoch)
        log.update_high_watermark(log.log_end_offset)
        return log

    old = a_history("old", [0] * 21, 20)
    new = a_history("new", [0] * 10 + [1] * 21, 10)

    async def copy() -> None:
        await copy_closed_segments(old, store)
        new.rolls.finish()
        for base_offset in (10, 20):
            segment = new.segments.floor(base_offset)
            assert segment is not None
            assert segment.base_offset == base_offset
            segment.write_out_indexes()
            files = files_of(segment, base_offset + 10, RealFileSystem())
            name = SegmentId(PARTITION._replace(partition=0), base_offset.to_bytes(16, "big"))
            entry = replace(an_entry(base_offset, base_offset + 9, segment.size), id=name, leader_epochs={1: base_offset})
            await store.copy(entry, replace(files, leader_epochs=b"0\n2\n0 0\n1 10\n"))

    run(copy)
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        done = restore(broker, tmp_path, keys, "orders")
        assert done.exit_code == 0, done.output
        (row,) = json.loads(done.stdout)
        assert (row["records"], row["missing"], row["end"]) == (30, [], 30)
        written = [value for _, value, _ in records_of(broker, "orders", 0, 30)]
        assert written == [b"%s-%03d" % (b"old" if at < 10 else b"new", at) for at in range(30)]


def test_a_copy_without_leader_epochs_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    log = a_transactional_log(tmp_path)
    (first, *others) = run(lambda: copy_closed_segments(log, a_directory_store(tmp_path / "shared")))
    keys = {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(tmp_path / "shared")}
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
    epochs = next(each for each in (tmp_path / "shared").rglob("*leader*") if each.name.startswith(f"{first.start_offset:020d}"))
    epochs.write_text("0\n0\n")

    async def story() -> None:
        async with the_store(properties) as storage:
            (found,) = await stored_logs(storage, "orders", None, None)
            assert [each.start_offset for each in found.copies] == [each.start_offset for each in others]
            (text,) = found.left_out
            assert "leader epochs are not known" in text

    run(story)


def test_a_newest_copy_that_is_not_complete_is_missing(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    log = a_transactional_log(tmp_path)
    (*others, last) = run(lambda: copy_closed_segments(log, a_directory_store(tmp_path / "shared")))
    keys = SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(tmp_path / "shared")}
    next((tmp_path / "shared").rglob(f"{last.start_offset:020d}-*leader*")).unlink()
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        for options in (["--dry-run"], []):
            done = restore(broker, tmp_path, keys, "orders", *options)
            assert done.exit_code == 1
            (row,) = json.loads(done.stdout)
            (text,) = row["missing"]
            assert f"the copy at offset {last.start_offset} is not complete" in text
            assert (row["copies"], row["left_out"]) == (len(others), [])


def test_records_that_the_brokers_refuse_end_the_restore_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    keys = SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(tmp_path / "shared")}
    log = a_transactional_log(tmp_path)
    run(lambda: copy_closed_segments(log, a_directory_store(tmp_path / "shared")))
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("small", 1, 1, config={"max.message.bytes": "70", "retention.ms": "-1"})])["small"].result(30)
        done = restore(broker, tmp_path, keys, "orders", "--to", "small")
        assert done.exit_code == 1
        (line,) = done.stderr.strip().splitlines()
        assert "small-0" in line
        next((tmp_path / "shared").rglob("00000000000000000000-*leader*")).unlink()
        shown = restore(broker, tmp_path, keys, "orders", "--dry-run")
        ((text,),) = [row["left_out"] for row in json.loads(shown.stdout)]
        assert "offset 0 is not complete" in text


def test_aborted_records_and_damaged_copies_are_left_out_and_the_rest_is_written(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    keys = SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(tmp_path / "shared")}
    store = a_directory_store(tmp_path / "shared")
    log = a_transactional_log(tmp_path)
    entries = run(lambda: copy_closed_segments(log, store))
    aborted = {}
    for entry in entries:
        index = run(lambda entry=entry: store.index(entry, IndexKind.TRANSACTION))
        aborted[entry.start_offset] = len(index) // 34
    assert sum(aborted.values()) > 4
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        whole = restore(broker, tmp_path, keys, "orders", "--to", "whole")
        assert whole.exit_code == 0, whole.output
        (row,) = json.loads(whole.stdout)
        committed = records_of(broker, "whole", 0, row["records"])
        assert 0 < len(committed) < row["end"] / 2
        broken = next((tmp_path / "shared").rglob(f"{entries[2].start_offset:020d}-*.log"))
        broken.write_bytes(broken.read_bytes()[:-30] + bytes(30))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("part", 1, 1, config={"retention.ms": "-1"})])["part"].result(30)
        part = restore(broker, tmp_path, keys, "orders", "--to", "part")
        assert part.exit_code == 1
        (row,) = json.loads(part.stdout)
        (missing,) = row["missing"]
        assert f"in the copy at {entries[2].start_offset}" in missing
        assert row["left_out"] == []
        assert 0 < row["records"] < len(committed)
        nothing = restore(broker, tmp_path, keys, "unheard-of")
        assert (nothing.exit_code, nothing.stderr.strip().splitlines()) == (1, ["ottla: the store has no complete copy of unheard-of"])
