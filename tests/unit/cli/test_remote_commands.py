"""The commands for the remote store take a copy without records for a whole one, and not for a gap."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.cli.remote import lost_copies
from ottla.cli.remote.command import _faults
from ottla.cli.remote.lost_copies import give_up, name_of, vanished
from ottla.cli.remote.removal import SAFE_AGE_MS, remove_orphans
from ottla.cli.remote.restore import _prepare, _write
from ottla.cli.remote.scrub import Throttle, _faults_of, _orphans
from ottla.cli.remote.store_access import the_store
from ottla.cli.remote.stored_copies import CopyName, chosen, copies_begun
from ottla.cli.remote.stored_logs import stored_logs
from ottla.client import producer
from ottla.client.producer import OutgoingRecord
from ottla.config.errors import ConfigError
from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult
from ottla.storage.disk.filesystem import RealFileSystem
from ottla.storage.remote.entries import SegmentEntry, SegmentState, SegmentUpdate, is_to_copy_again
from ottla.storage.remote.metadata.log import MetadataLog
from ottla.storage.remote.metadata.records import SEGMENT, encode_entry, encode_update, read_record
from ottla.storage.remote.metadata.segment_cache import SegmentCache
from ottla.storage.remote.object_layout import INDEXES, LOG, MANIFEST, object_key, with_mark
from ottla.storage.remote.ports import RemoteObjectMissing, StoredObject
from tests.support.batches import a_batch
from tests.support.filesystems import MemoryFileSystem
from tests.support.logs import a_context, a_log, append, follow
from tests.support.remote_fakes import MemoryStore
from tests.support.remote_reading import copy_closed_segments, run
from tests.support.remote_segments import an_entry
from tests.support.remote_stores import a_directory_store

CLUSTER = "cluster"


class Written:
    """Takes the place of a producer."""

    def __init__(self) -> None:
        self.records = 0

    def send(self, record: Any) -> None:
        self.records += 1

    def poll(self, seconds: float) -> None:
        pass

    def flush(self) -> None:
        pass


class Stored:
    """A directory with copies of a log, of which the second has no records."""

    def __init__(self, directory: Path) -> None:
        (directory / "shared").mkdir()
        self.properties = directory / "server.properties"
        keys = {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(directory / "shared")}
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
        log = a_log(a_context(RealFileSystem()), log_dir=str(directory / "log"), segment_index_bytes=1200)
        append(log, a_batch(2), epoch=0)
        log.roll()
        follow(log, a_batch(base_offset=1 << 32, leader_epoch=0), 0)
        log.roll()
        self.entries = run(lambda: self._copy(directory, log))

    async def _copy(self, directory: Path, log: Any) -> list[SegmentEntry]:
        store = a_directory_store(directory / "shared")
        await store.owner(CLUSTER)
        return await copy_closed_segments(log, store)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    stored = Stored(tmp_path)
    assert [bool(entry.size) for entry in stored.entries] == [True, False, True]
    return stored


def test_a_copy_without_records_is_complete(stored: Stored) -> None:
    assert asyncio.run(_faults(stored.properties, CLUSTER, stored.entries)) == ([], [])

    async def scrub() -> list[list[str]]:
        async with the_store(stored.properties, CLUSTER) as storage:
            return [await _faults_of(storage, entry, Throttle(None)) for entry in stored.entries]

    assert asyncio.run(scrub()) == [[], [], []]


def test_a_copy_without_records_that_is_missing_is_a_fault(stored: Stored) -> None:
    lost = replace(stored.entries[1], start_offset=7)
    ((found, fault),), gone = asyncio.run(_faults(stored.properties, CLUSTER, [lost]))
    assert [found] == gone == [lost]
    assert "00007-" in fault


@pytest.mark.parametrize("knows_ends", [False, True])
def test_a_copy_without_records_is_no_gap_of_a_log_that_is_restored(stored: Stored, knows_ends: bool) -> None:
    async def restore() -> dict[str, Any]:
        async with the_store(stored.properties) as storage:
            (log,) = await stored_logs(storage, "orders", None, None)
            if knows_ends:
                log = log._replace(copies=stored.entries)
            return await _write(storage, log, Written())  # type: ignore[arg-type]  # no broker is needed

    row = asyncio.run(restore())
    assert (row["records"], row["missing"], row["end"]) == (3, [], (1 << 32) + 1)


@pytest.mark.parametrize(
    ("configs", "limits"),
    [
        ({"retention.ms": "604800000", "retention.bytes": "-1", "cleanup.policy": "delete"}, "retention.ms=604800000"),
        ({"retention.ms": "-1", "retention.bytes": "1", "cleanup.policy": "compact,delete"}, "retention.bytes=1"),
        ({"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}, ""),
        ({"retention.ms": "1", "retention.bytes": "1", "cleanup.policy": "compact"}, ""),
    ],
)
def test_a_topic_that_would_lose_the_restored_records_again_is_named(
    configs: dict[str, str], limits: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = SimpleNamespace(name="t", partitions=[SimpleNamespace(partition_index=0)])
    described = [DescribeConfigsResourceResult(name=name, value=value) for name, value in configs.items()]
    monkeypatch.setattr("ottla.client.topic_admin.all_topics", lambda _: [topic])
    monkeypatch.setattr("ottla.client.offsets.end_offsets", lambda _, names: dict.fromkeys(names, 0))
    monkeypatch.setattr("ottla.client.config_admin.describe_configs", lambda *_: described)
    _prepare(None, "t", 1)  # type: ignore[arg-type]  # no broker is needed
    keep = "ottla configs alter --set retention.ms=-1 --set retention.bytes=-1 -- topic t"
    told = f"t has {limits}, which removes restored records again; to keep them: {keep}\n"
    assert capsys.readouterr().err == (told if limits else "")


def test_a_missing_copy_is_a_gap_of_a_log_that_is_restored(stored: Stored) -> None:
    async def restore() -> dict[str, Any]:
        async with the_store(stored.properties) as storage:
            (log,) = await stored_logs(storage, "orders", None, None)
            log = log._replace(copies=[stored.entries[0], stored.entries[2]])
            return await _write(storage, log, Written())  # type: ignore[arg-type]  # no broker is needed

    assert asyncio.run(restore())["missing"] == [f"offsets 2 to {(1 << 32) - 1} are in no copy"]


@pytest.mark.parametrize(
    ("topics", "is_chosen"),
    [((), True), (("orders",), True), (("other", "ord*"), True), (("[no]rder?",), True), (("Ord*",), False), (("order",), False)],
)
def test_names_and_patterns_choose_copies_and_objects_without_one(stored: Stored, topics: tuple[str, ...], is_chosen: bool) -> None:
    first, *_ = stored.entries
    entry = replace(first, id=first.id._replace(partition=first.id.partition._replace(topic="orders")))
    assert chosen(entry, topics) is is_chosen
    name = object_key("", entry, LOG)
    assert list(_orphans([StoredObject(name, 0)], [], topics)) == ([name] if is_chosen else [])


def test_a_copy_without_its_object_has_vanished(stored: Stored) -> None:
    first, *others = stored.entries

    async def find() -> list[SegmentEntry]:
        async with the_store(stored.properties, CLUSTER) as storage:
            objects = [each async for each in storage.store.list("")]
            assert await vanished(storage.store, [], stored.entries) == [], "they were made after the listing"
            for path in stored.properties.parent.rglob(f"{first.start_offset:020d}-*.log"):
                path.unlink()
            assert await vanished(storage.store, objects, stored.entries) == []
            left = [each for each in objects if not (each.name.endswith(".log") and f"/{first.start_offset:020d}-" in each.name)]
            assert await vanished(storage.store, [*left, StoredObject("notes/todo.txt", 0)], stored.entries) == [first]
            return await vanished(storage.store, [], others)

    assert asyncio.run(find()) == []


def test_a_command_makes_no_store_where_none_is(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    mounted = tmp_path / "shared"
    mounted.rename(tmp_path / "elsewhere")
    mounted.mkdir()

    async def use() -> None:
        async with the_store(stored.properties, CLUSTER):
            pass

    with pytest.raises(ConfigError, match="is no directory"):
        asyncio.run(use())
    assert list(mounted.iterdir()) == []


def test_a_copy_without_its_manifest_has_vanished_too(stored: Stored) -> None:
    unreadable, *_ = stored.entries

    class Store:
        """Takes the place of a bucket in which a manifest is missing."""

        async def fetch(self, entry: SegmentEntry, start: int, end: int) -> bytes:
            raise RemoteObjectMissing("the manifest")

    names = {object_key("", entry, part) for entry in stored.entries for part in (LOG, INDEXES, MANIFEST)}
    objects = [StoredObject(name, 0) for name in names - {object_key("", unreadable, MANIFEST)}]
    assert asyncio.run(vanished(Store(), objects, stored.entries)) == [unreadable]  # type: ignore[arg-type]  # all that is asked


def test_an_object_goes_only_if_the_metadata_have_had_its_copy() -> None:
    removed, lost, young, other = (an_entry(start, start + 9) for start in (10, 20, 30, 40))
    store = MemoryStore(MemoryFileSystem())
    store.clock_ms = SAFE_AGE_MS + 1
    ages = {object_key("", entry, LOG): 0 for entry in (removed, lost, young)} | {object_key("", young, INDEXES): 2, "notes/todo.txt": 0}
    described = {CopyName(each.id, each.start_offset) for each in (removed, young, other)} | {CopyName(lost.id, 21)}
    objects = [StoredObject(name, modified_ms) for name, modified_ms in ages.items()]

    outcomes = asyncio.run(remove_orphans(store, objects, described))

    assert store.calls == [("delete", removed.start_offset)]
    assert [name for name, reason in outcomes.items() if reason is None] == [object_key("", removed, LOG)]
    assert "ottla remote restore" in str(outcomes[object_key("", lost, LOG)])
    assert "a day old" in str(outcomes[object_key("", young, LOG)])


def test_the_metadata_have_had_a_copy_whose_entry_is_gone() -> None:
    gone, lost = an_entry(10, 19, state=SegmentState.COPY_SEGMENT_STARTED), an_entry(20, 29)
    log = MetadataLog(0)
    log.know(gone.id.partition)
    described: set[CopyName] = set()
    deleting, deleted = (SegmentUpdate(gone.id, 1, 0, state) for state in list(SegmentState)[2:])
    after_lost = SegmentUpdate(lost.id, 1, 0, SegmentState.COPY_SEGMENT_FINISHED)  # the record before this one is lost
    values = [encode_entry(gone), encode_update(deleting), encode_update(deleted), encode_update(after_lost), encode_entry(lost), b"", None]
    for offset, value in enumerate(values):
        log.take_record(value, offset)
        described.update(copies_begun(log, value))
    assert described == {CopyName(gone.id, gone.start_offset)}
    assert [len(each.cache) for each in log.followed.values()] == [0]


class Leader:
    """Takes the place of a cluster with one broker."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, logger: str = "ottla.broker", tiered: str = "true", is_here: bool = True
    ) -> None:
        self.given_up: list[SegmentEntry] = []
        self.asked: list[str] = []
        configs = {"t": ("remote.storage.enable", tiered), "7": (logger, "INFO")}

        def describe(_: object, kind: int, name: str) -> list[DescribeConfigsResourceResult]:
            self.asked.append(name)
            key, value = configs["7" if name == "7" else "t"]
            return [DescribeConfigsResourceResult(name=key, value=value)]

        monkeypatch.setattr(lost_copies, "describe_configs", describe)
        monkeypatch.setattr(lost_copies, "still_local", lambda _, entries: {entry.id for entry in entries} if is_here else set())
        monkeypatch.setattr(lost_copies, "_publish", lambda _, entries: self.given_up.extend(entries))

    def leader(self, _: object) -> int:
        return 7

    def give_up(self, entry: SegmentEntry, *known: SegmentEntry) -> str | None:
        """Why the copy is not given up; None if it is."""
        return give_up(self, [entry], [entry, *known])[name_of(entry)]  # type: ignore[arg-type]  # a cluster that knows the leader


@pytest.mark.parametrize(
    ("leader", "is_marked", "reason"),
    [
        ({}, False, None),
        ({"is_here": False}, False, "does not have all of the segment"),
        ({}, True, "those of a lost log"),
        ({"tiered": "false"}, False, "does not have remote.storage.enable"),
        ({"logger": "kafka.server.KafkaApis"}, False, "no broker of Ottla"),
    ],
)
def test_only_a_copy_that_its_leader_makes_again_is_given_up(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, leader: dict[str, Any], is_marked: bool, reason: str | None
) -> None:
    entry, other, _ = stored.entries
    asked = Leader(monkeypatch, **leader)
    found = asked.give_up(entry, replace(other, custom=with_mark(None, is_of_other_log=is_marked)))
    assert asked.given_up == ([] if reason else [entry])
    assert found is None if reason is None else reason in str(found)


def test_brokers_are_asked_once_for_all_copies_of_a_partition(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch)
    assert set(give_up(leader, stored.entries, stored.entries).values()) == {None}  # type: ignore[arg-type]  # as above
    assert leader.given_up == stored.entries
    assert len(leader.asked) == 2


def test_a_segment_that_its_leader_removes_meanwhile_is_not_told_to_be_copied(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch)
    answers = iter([{stored.entries[0].id}, set()])
    monkeypatch.setattr(lost_copies, "still_local", lambda *_: next(answers))
    assert "has just removed the segment" in str(leader.give_up(stored.entries[0]))


def test_the_metadata_say_that_the_records_of_a_vanished_copy_stay(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = stored.entries[0]
    sent: list[OutgoingRecord] = []

    class Published:
        """Takes the place of a producer for the topic of the metadata."""

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __enter__(self) -> Any:
            return SimpleNamespace(send=sent.append)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(producer, "Producer", Published)
    lost_copies._publish(SimpleNamespace(partitions=lambda _: range(2)), [entry])  # type: ignore[arg-type]  # all that is asked
    cache = SegmentCache(entry.id.partition)
    for value in (encode_entry(replace(entry, state=SegmentState.COPY_SEGMENT_STARTED)), sent[0].value):
        record = read_record(value or b"")
        if record.kind == SEGMENT:
            cache.add(record.key, record.packed)
        else:
            cache.change(record.key, record.state, record.broker_id, record.event_timestamp_ms, record.custom)
    (found,) = cache.all_entries()
    assert is_to_copy_again(found)
    assert not is_to_copy_again(replace(found, broker_id=entry.broker_id)), "a broker removes its records"


def test_removing_and_copying_again_are_two_commands(stored: Stored) -> None:
    done = CliRunner().invoke(main, ["remote", "scrub", "--config", str(stored.properties), "--remove", "--copy-again"])
    assert (done.exit_code, "two commands" in done.stderr) == (2, True)
