"""A copy that is lost among others is made again from the local segment; without that segment everybody learns of the gap."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.doctor.remote_checks import ENABLE, METADATA_TOPIC, RemoteFacts, ask_remote
from ottla.cli.main import main
from ottla.cli.remote.lost_copies import ADVICE
from ottla.client.cluster import Cluster
from ottla.config.remote_storage import AIVEN_REMOTE_STORAGE, LOCAL_TIERED_STORAGE
from ottla.storage.remote.entries import SegmentEntry, SegmentState, SegmentUpdate, TopicIdPartition
from tests.integration.remote.test_copied_and_read import CHUNKS, SETTINGS, TOPIC, local_starts, scrape
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.moto_server import s3_keys
from tests.support.s3_servers import KINDS, an_s3_server
from tests.support.several_brokers import until

RECORDS = 200


class Stage:
    """A broker with the topic `t`, of one partition."""

    def __init__(self, broker: InProcessBroker, properties: Path) -> None:
        self.broker = broker
        self._properties = properties

    @property
    def _partition(self) -> TopicIdPartition:
        log = self.broker.services.data.replica_manager.partitions["t"][0].log
        return TopicIdPartition(log.topic_id, *log.topic_partition)

    def fill(self, **config: str) -> None:
        """Creates the topic, and writes records until several segments are copied."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config=TOPIC | config)])["t"].result(30)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0, "batch.num.messages": 5})
        for at in range(RECORDS):
            producer.produce("t", f"{at:05d}" * 100, partition=0)
            if at % 20 == 19:
                assert producer.flush(30) == 0
        until(lambda: len(self.finished()) >= 4)
        until(lambda: self.command("check", "--config", str(self._properties))[0] == 0)

    def finished(self) -> list[SegmentEntry]:
        """The finished copies by offset."""
        remote = self.broker.services.remote
        assert remote is not None
        partition = self._partition
        is_ready = self.broker.run(remote.metadata.is_ready, partition)
        entries = self.broker.run(lambda: list(remote.metadata.all_entries(partition))) if is_ready else []
        return sorted((each for each in entries if each.state == SegmentState.COPY_SEGMENT_FINISHED), key=lambda each: each.start_offset)

    def lose_objects(self, entry: SegmentEntry) -> None:
        """Another program removes the objects of a copy, and the metadata do not know."""
        remote = self.broker.services.remote
        assert remote is not None
        store = remote.storage.store

        async def remove() -> None:
            await store.delete(entry)

        self.broker.run(remove)

    def lose(self, entry: SegmentEntry) -> None:
        """Another program removes a copy."""
        remote = self.broker.services.remote
        assert remote is not None

        async def remove() -> None:
            await remote.metadata.update(SegmentUpdate(entry.id, 9, 0, SegmentState.DELETE_SEGMENT_STARTED))
            await remote.storage.store.delete(entry)
            await remote.metadata.update(SegmentUpdate(entry.id, 9, 0, SegmentState.DELETE_SEGMENT_FINISHED))

        self.broker.run(remove)

    def command(self, name: str, *options: str) -> tuple[int, str]:
        """The status of `ottla remote`, and what it writes to standard error."""
        done = CliRunner().invoke(main, ["remote", name, "-b", self.broker.bootstrap, *options])
        return done.exit_code, done.stderr

    def check(self, *topics: str) -> tuple[int, str]:
        """The result of `ottla remote check`."""
        return self.command("check", "--config", str(self._properties), *topics)

    def store_command(self, *words: str) -> tuple[int, Any]:
        """The status of `ottla remote check` or `scrub`, and what it prints."""
        words = ("remote", *words, "-b", self.broker.bootstrap, "--config", str(self._properties), "--json")
        done = CliRunner().invoke(main, words)
        return done.exit_code, json.loads(done.stdout)


@pytest.fixture(params=["directory", *KINDS])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    properties = tmp_path / "server.properties"

    def run(keys: dict[str, str]) -> Iterator[Stage]:
        properties.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
        with a_broker_in_process(tmp_path / "logs", **keys) as broker:
            yield Stage(broker, properties)

    if request.param == "directory":
        shared = tmp_path / "shared"
        shared.mkdir()
        yield from run(SETTINGS | {"remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE, "rsm.config.dir": str(shared)})
        return
    with an_s3_server(request.param, tmp_path / "s3", "bucket") as s3:
        yield from run(SETTINGS | {"remote.log.storage.manager.class.name": AIVEN_REMOTE_STORAGE, **s3_keys(s3.url, **CHUNKS)})


def test_a_lost_copy_is_made_again_while_its_segment_is_here(stage: Stage) -> None:
    stage.fill(**{"local.retention.bytes": "-2"})
    before = stage.finished()
    stage.lose(before[1])

    def is_whole() -> bool:
        found = stage.finished()
        return [each.start_offset for each in found[:4]] == [each.start_offset for each in before[:4]]

    until(is_whole)
    assert stage.finished()[1].id != before[1].id
    assert stage.check()[0] == 0


def test_a_copy_whose_objects_vanished_is_made_again_by_a_command_while_its_segment_is_here(stage: Stage) -> None:
    stage.fill(**{"local.retention.bytes": "-2"})
    assert stage.store_command("scrub", "--copy-again") == (0, [])
    before = stage.finished()
    lost = before[1]
    stage.lose_objects(lost)
    status, (fault,) = stage.store_command("check")
    assert (status, fault["start_offset"], ADVICE in fault["fault"]) == (1, lost.start_offset, True)
    status, found = stage.store_command("scrub")
    assert (status, [(each["start_offset"], ADVICE in each["faults"][0]) for each in found["damaged"]]) == (1, [(lost.start_offset, True)])

    name = f"t-0: {lost.start_offset} to {lost.end_offset}"
    assert stage.store_command("scrub", "--copy-again", "another") == (0, [])
    status, outcomes = stage.store_command("scrub", "--copy-again")
    assert (status, outcomes) == (0, [{"name": name, "result": "its leader copies it again", "error": None}])

    def is_whole() -> bool:
        found = [each for each in stage.finished() if each.start_offset == lost.start_offset]
        return len(found) == 1 and found[0].id != lost.id and found[0].end_offset == lost.end_offset

    until(is_whole)
    until(lambda: stage.check()[0] == 0)
    until(lambda: stage.store_command("scrub")[0] == 0)


def test_a_copy_whose_segment_is_nowhere_is_not_given_up(stage: Stage) -> None:
    stage.fill()
    lost = stage.finished()[1]
    until(lambda: local_starts(stage.broker, 1)[0] > lost.end_offset)
    stage.lose_objects(lost)
    status, (fault,) = stage.store_command("check")
    assert (status, fault["start_offset"], ADVICE in fault["fault"]) == (1, lost.start_offset, False)
    status, (outcome,) = stage.store_command("scrub", "--copy-again")
    assert (status, outcome["result"], "does not have all of the segment" in outcome["error"]) == (1, None, True)
    assert lost.id in [each.id for each in stage.finished()]


def test_a_gap_whose_segments_are_gone_is_told_and_can_be_passed(stage: Stage) -> None:
    stage.fill()
    lost = stage.finished()[1]
    until(lambda: local_starts(stage.broker, 1)[0] > lost.end_offset)
    stage.lose(lost)

    size = lost.end_offset - lost.start_offset + 1
    until(lambda: scrape(stage.broker)["ottla_remote_missing_offsets"] == size)
    for topics in ((), ("t",), ("[st]",)):
        status, text = stage.check(*topics)
        assert status == 1
        assert f"t-0: no copy and no leader has the offsets {lost.start_offset} to {lost.end_offset}" in text
    status, text = stage.check("s*")
    assert (status, "0 of 0 copies are complete" in text) == (0, True)
    with Cluster(stage.broker.bootstrap) as cluster:
        facts = RemoteFacts()
        ask_remote(facts, cluster, {"t": {ENABLE: "true"}}, {"t": [0], METADATA_TOPIC: [0, 1]}, int(time.time() * 1000))
    assert facts.gaps == {"t-0": f"{lost.start_offset} to {lost.end_offset}"}

    consumer = Consumer({"bootstrap.servers": stage.broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    try:
        assert read(consumer, lost.start_offset) == list(range(lost.start_offset))
        admin = AdminClient({"bootstrap.servers": stage.broker.bootstrap})
        ((_, deleted),) = admin.delete_records([TopicPartition("t", 0, lost.end_offset + 1)]).items()
        deleted.result(30)
        assert read(consumer, RECORDS - lost.end_offset - 1) == list(range(lost.end_offset + 1, RECORDS))
    finally:
        consumer.close()
    until(lambda: scrape(stage.broker)["ottla_remote_missing_offsets"] == 0)
    assert stage.check()[0] == 0


def read(consumer: Consumer, count: int) -> list[int]:
    """The offsets of so many records."""
    found: list[Any] = []
    until(lambda: found.extend(consumer.consume(count - len(found), 0.5)) or len(found) >= count)
    assert all(each.error() is None for each in found), json.dumps([str(each.error()) for each in found])
    return [each.offset() for each in found]
