"""`ottla remote scrub` finds every kind of damage in a remote store, and nothing in a store that is whole."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.cli.doctor.remote_checks import (
    ENABLE,
    METADATA_TOPIC,
    PATIENCE_MS,
    SEGMENT_MS,
    RemoteFacts,
    ask_remote,
    check_remote_store,
)
from ottla.cli.main import main
from ottla.cli.remote import scrub
from ottla.client.cluster import Cluster
from ottla.config.broker import BrokerConfig
from ottla.config.remote_storage import LOCAL_TIERED_STORAGE
from ottla.storage.remote.directory_store import DirectoryStore
from ottla.storage.remote.entries import SegmentState, SegmentUpdate, TopicIdPartition
from ottla.storage.remote.index_cache import DIRECTORY as INDEX_CACHE
from ottla.storage.remote.local_layout import ROOT
from ottla.storage.remote.ports import OWNER_NAME
from tests.integration.remote.test_copied_and_read import RECORDS, SETTINGS, fill, local_starts
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.remote_segments import an_entry
from tests.support.several_brokers import until


class Scrubbed:
    """A broker whose copies are in a directory, and the command that examines them."""

    def __init__(self, broker: InProcessBroker, shared: Path, properties: Path) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap
        self.shared = shared
        self.properties = properties

    def scrub(self, *options: str) -> tuple[int, Any]:
        """The status of the command and what it prints."""
        words = ["remote", "scrub", "-b", self.bootstrap, "--config", str(self.properties), "--json", *options]
        done = CliRunner().invoke(main, words)
        return done.exit_code, json.loads(done.stdout)

    def active_base(self) -> int:
        """Where the active segment begins, which is not copied."""
        log = self._broker.services.data.replica_manager.partitions["t"][0].log
        return self._broker.run(lambda: log.segments.active.base_offset)

    def remove_copy(self, offset: int, uuid: int) -> None:
        """The metadata describe a copy, and the broker removes it."""
        remote = self._broker.services.remote
        assert remote is not None
        metadata = remote.metadata
        log = self._broker.services.data.replica_manager.partitions["t"][0].log
        partition = TopicIdPartition(log.topic_id, *log.topic_partition)
        entry = an_entry(offset, offset, uuid=uuid, partition=partition, state=SegmentState.COPY_SEGMENT_STARTED, broker_id=9)

        async def publish() -> None:
            await metadata.add(entry)
            await metadata.update(SegmentUpdate(entry.id, 9, 0, SegmentState.DELETE_SEGMENT_STARTED))

        self._broker.run(publish)
        until(lambda: self._broker.run(metadata.get, partition, entry.id.uuid) is None)

    def are_all_copied(self) -> bool:
        """Whether nothing is being copied any more."""
        done = CliRunner().invoke(main, ["remote", "list", "-b", self.bootstrap, "--json"])
        copies = json.loads(done.stdout)
        ends = [each["end_offset"] for each in copies if each["state"] == "COPY_SEGMENT_FINISHED"]
        return len(ends) == len(copies) and max(ends) + 1 == self.active_base()

    def parts(self, suffix: str) -> list[Path]:
        """The files of that kind in the order of their offsets."""
        return sorted(self.shared.rglob(f"*{suffix}"))


@pytest.fixture
def scrubbed(tmp_path: Path) -> Iterator[Scrubbed]:
    shared = tmp_path / "shared"
    shared.mkdir()
    keys = SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(shared)}
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
    with a_broker_in_process(tmp_path / "logs", **keys) as broker:
        fill(broker, 1)
        until(lambda: local_starts(broker, 1)[0] > RECORDS // 2)
        yield Scrubbed(broker, shared, properties)


def test_every_damage_is_found_and_told(scrubbed: Scrubbed, tmp_path: Path) -> None:
    status, whole = scrubbed.scrub()
    assert (status, whole["damaged"], whole["orphans"]) == (0, [], []), whole
    assert whole["copies"] >= 5

    def change(path: Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)

    logs = scrubbed.parts(".log")
    change(logs[0], 500)
    change(scrubbed.parts(".timeindex")[1], 5)
    scrubbed.parts(".index")[2].unlink()
    logs[3].write_bytes(logs[3].read_bytes()[:-1])
    orphan = logs[0].with_name(logs[0].name.replace("00000000000000000000-", "00000000000000000077-"))
    orphan.write_bytes(b"left behind")
    (scrubbed.shared / "kafka-tiered-storage" / "notes").mkdir()
    (scrubbed.shared / "kafka-tiered-storage" / "notes" / "todo.txt").write_text("of somebody else")

    progress = tmp_path / "progress"
    status, found = scrubbed.scrub("--progress", str(progress))
    assert status == 1
    assert found["orphans"] == ["notes/todo.txt", f"{orphan.parent.name}/{orphan.name}"]
    faults = {each["start_offset"]: " ".join(each["faults"]) for each in found["damaged"]}
    starts = [int(path.name[:20]) for path in logs[:4]]
    assert list(faults) == starts
    for start, text in zip(starts, ("checksum of the batch", "timestamp index", ".index", "bytes"), strict=True):
        assert text in faults[start]
    assert len(progress.read_text().splitlines()) == 1 + found["copies"] - 4, "the copies that are whole are noted"

    status, again = scrubbed.scrub("--progress", str(progress), "t")
    assert (status, again["damaged"]) == (1, found["damaged"])
    assert again["orphans"] == [f"{orphan.parent.name}/{orphan.name}"]
    assert scrubbed.scrub("another-topic")[0] == 0


def test_a_scrub_that_ended_early_goes_on_where_it_was(scrubbed: Scrubbed, tmp_path: Path) -> None:
    until(scrubbed.are_all_copied)
    progress = tmp_path / "progress"
    first = scrubbed.parts(".log")[0]
    right = first.read_bytes()
    first.write_bytes(right[:-1])
    assert scrubbed.scrub("--progress", str(progress))[0] == 1
    first.write_bytes(right)
    for later in scrubbed.parts(".log")[1:]:
        later.write_bytes(b"")  # nothing of them is read again
    assert scrubbed.scrub("--progress", str(progress), "--rate", "1000")[0] == 0
    assert not progress.exists(), "all are whole: the next one begins anew"
    assert scrubbed.scrub()[0] == 1


def test_an_object_of_no_copy_keeps_no_later_scrub_from_reading_all_copies(scrubbed: Scrubbed, tmp_path: Path) -> None:
    until(scrubbed.are_all_copied)
    notes = scrubbed.shared / ROOT / "notes"
    notes.mkdir()
    (notes / "todo.txt").write_text("of somebody else")
    progress = tmp_path / "progress"
    progress.touch()
    status, found = scrubbed.scrub("--progress", str(progress))
    assert (status, found["damaged"], found["orphans"]) == (1, [], ["notes/todo.txt"])
    first = scrubbed.parts(".log")[0]
    first.write_bytes(first.read_bytes()[:-1])
    for _ in range(2):  # an empty file is none of another cluster
        progress.touch()
        assert len(scrubbed.scrub("--progress", str(progress))[1]["damaged"]) == 1


def test_objects_of_removed_copies_are_removed_and_none_that_may_be_all_that_is_left(scrubbed: Scrubbed) -> None:
    until(scrubbed.are_all_copied)
    root = scrubbed.shared / ROOT
    (folder,) = (each for each in root.iterdir() if each.name.startswith("t-0-"))
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    copy = "00000000000000000077-AAAAAAAAAAAAAAAAAAAAAA"
    scrubbed.remove_copy(77, 0)

    def leave(place: str, *, hours: float) -> str:
        path = root / place
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"left behind")
        at = time.time() - hours * 3600
        os.utime(path, (at, at))
        return place

    gone = [leave(f"{folder.name}/{copy}.{part}", hours=25) for part in ("log", "index")]
    stays = {
        leave(f"{folder.name}/{copy.replace('A', 'g')}.log", hours=25): "less than a day old",
        leave(f"{folder.name}/{copy.replace('A', 'g')}.index", hours=23): "less than a day old",
        leave(f"{folder.name}/{copy.replace('A', 'Q')}.log", hours=25): "have never had its copy",
        leave(f"{folder.name}/{copy.replace('77', '78')}.log", hours=25): "have never had its copy",
        leave(f"{folder.name.replace('t-0-', 't-1-')}/{copy}.log", hours=25): "have never had its copy",
        leave("notes/todo.txt", hours=25): "not that of a part of a copy",
        leave(f"strange-0-BBBBBBBBBBBBBBBBBBBBBA/{copy}.log", hours=25): "may belong to another cluster",
    }

    status, outcomes = scrubbed.scrub("--remove")

    assert status == 1
    assert sorted(each["name"] for each in outcomes if each["result"] == "removed") == sorted(gone)
    told = {each["name"]: each["error"] for each in outcomes if each["error"] is not None}
    assert told.keys() == stays.keys()
    assert all(reason in told[name] for name, reason in stays.items())
    assert [name for name in gone if (root / name).exists()] == []
    assert all((root / name).exists() for name in stays)
    assert {path: path.read_bytes() for path in whole} == whole
    assert scrubbed.scrub("--remove", "another") == (0, [])

    admin = AdminClient({"bootstrap.servers": scrubbed.bootstrap})
    admin.delete_topics(["t"])["t"].result(30)
    until(lambda: not any(path.exists() for path in whole))
    gone = [leave(f"{folder.name}/{copy}.log", hours=25)]

    def outcome() -> Any:
        return scrubbed.scrub("--remove", "t")[1]

    until(lambda: {each["name"]: each["result"] for each in outcome()}.get(gone[0]) == "removed")
    assert not (root / gone[0]).exists()


def test_the_store_of_another_cluster_is_neither_read_nor_changed(scrubbed: Scrubbed) -> None:
    until(scrubbed.are_all_copied)
    owner = scrubbed.shared / ROOT / OWNER_NAME
    words = ["-b", scrubbed.bootstrap, "--config", str(scrubbed.properties)]
    right = owner.read_text()
    owner.write_text("another\n")
    for command in (["scrub"], ["scrub", "--remove"], ["scrub", "--copy-again"], ["check"]):
        done = CliRunner().invoke(main, ["remote", *command, *words])
        (line,) = done.stderr.strip().splitlines()
        assert (done.exit_code, "belongs to the cluster another" in line) == (1, True)
    owner.unlink()
    for option in ("--remove", "--copy-again"):
        done = CliRunner().invoke(main, ["remote", "scrub", option, *words])
        (line,) = done.stderr.strip().splitlines()
        assert (done.exit_code, f"has no {OWNER_NAME}" in line) == (1, True)
    assert scrubbed.scrub()[0] == 0
    owner.write_text(right)
    assert scrubbed.scrub("--remove") == (0, [])


def test_a_copy_that_the_broker_removes_meanwhile_is_not_damaged(scrubbed: Scrubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    until(scrubbed.are_all_copied)
    first, second = scrubbed.parts(".log")[:2]
    examine = scrub._faults_of

    async def examine_later(*arguments: Any) -> list[str]:
        if first.exists():
            admin = AdminClient({"bootstrap.servers": scrubbed.bootstrap})
            ((_, deleted),) = admin.delete_records([TopicPartition("t", 0, int(second.name[:20]))]).items()
            deleted.result(30)
            until(lambda: not first.exists())
        return await examine(*arguments)

    monkeypatch.setattr(scrub, "_faults_of", examine_later)
    status, found = scrubbed.scrub()
    assert (status, found["damaged"], found["orphans"]) == (0, [], []), found


def test_a_store_that_does_not_list_its_objects_is_told_in_one_line(scrubbed: Scrubbed, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(DirectoryStore, "_files_in", refuse)
    done = CliRunner().invoke(main, ["remote", "scrub", "-b", scrubbed.bootstrap, "--config", str(scrubbed.properties)])
    (line,) = done.stderr.strip().splitlines()
    assert (done.exit_code, "Input/output error" in line) == (1, True)


def test_the_progress_of_another_cluster_is_refused_in_one_line(scrubbed: Scrubbed, tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    progress.write_text('{"scrub of cluster": "another"}\n')
    words = ["remote", "scrub", "-b", scrubbed.bootstrap, "--config", str(scrubbed.properties), "--progress", str(progress)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    (line,) = done.stderr.strip().splitlines()
    assert str(progress) in line


def test_the_doctor_finds_copies_that_are_missing_and_topics_without_their_remote_storage(scrubbed: Scrubbed) -> None:
    until(scrubbed.are_all_copied)
    base = scrubbed.active_base()
    topics = {"t": [0], METADATA_TOPIC: [0, 1]}
    last_ms = 1_700_000_000_000 + RECORDS - 1
    with Cluster(scrubbed.bootstrap) as cluster:

        def ask(config: dict[str, str], now_ms: int = last_ms + PATIENCE_MS) -> RemoteFacts:
            facts = RemoteFacts()
            ask_remote(facts, cluster, {"t": config}, topics, now_ms)
            return facts

        count = len(scrubbed.parts(".log"))
        assert ask({}) == RemoteFacts({"t": count}, {})
        assert ask({ENABLE: "true", SEGMENT_MS: "1"}).behind == {"t-0": base}
        assert ask({ENABLE: "true", SEGMENT_MS: "1000"}).behind == {}, "the active segment is not due"
        assert ask({ENABLE: "true", SEGMENT_MS: "1"}, last_ms + PATIENCE_MS + 1).behind == {}, "nothing closes it"
        facts = RemoteFacts()
        ask_remote(facts, cluster, {}, {"t": [0]}, last_ms)
        assert facts == RemoteFacts()


def test_the_doctor_asks_the_store_of_a_broker(tmp_path: Path) -> None:
    keys = {"remote.log.storage.system.enable": "true", "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE}

    def kinds(directory: Path) -> list[tuple[str, str]]:
        paths = {"rsm.config.dir": str(directory), "log.dirs": str(tmp_path / "logs")}
        return [(each.kind.id, each.what) for each in check_remote_store(BrokerConfig(keys | paths))]

    ((kind, what),) = kinds(tmp_path / "gone")
    assert (kind, "gone" in what, "\n" in what) == ("remote-store-unusable", True, False)
    assert kinds(tmp_path) == [], "the first start makes the folder"
    (tmp_path / "logs" / INDEX_CACHE).mkdir(parents=True)
    assert [kind for kind, _ in kinds(tmp_path)] == ["remote-store-unusable"]
    (tmp_path / ROOT).mkdir()
    assert kinds(tmp_path) == []
    assert list(check_remote_store(BrokerConfig({}))) == []
