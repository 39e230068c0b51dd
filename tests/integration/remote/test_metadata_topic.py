"""Brokers share the metadata of remote segments by the real topic: several of them, over restarts, with leaders that go."""

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from ottla.broker.remote.metadata.topic_metadata import TopicMetadata
from ottla.cli.main import main
from ottla.controller.znodes.layout import config_path
from ottla.storage.remote.entries import SegmentEntry, SegmentState
from ottla.storage.remote.local_layout import LOG_SUFFIX, ROOT, SUFFIX_OF, partition_directory, segment_name
from ottla.storage.remote.metadata.log import METADATA_TOPIC
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.remote_metadata import A_PARTITION, an_entry, an_update
from tests.support.several_brokers import metadata_of, three_brokers, until

PREFIX = "rlmm.config.remote.log.metadata."


def tiered(shared: Path) -> dict[str, str]:
    """Brokers with remote storage in a folder that they share."""
    shared.mkdir()
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "rsm.config.dir": str(shared),
        f"{PREFIX}topic.num.partitions": "3",
    }


FINISHED = SegmentState.COPY_SEGMENT_FINISHED


def metadata(broker: InProcessBroker) -> TopicMetadata:
    remote = broker.services.remote
    assert remote is not None
    return remote.metadata


def follow(broker: InProcessBroker) -> None:
    broker.run(lambda: metadata(broker).follow(A_PARTITION))
    until(lambda: broker.run(lambda: metadata(broker).is_ready(A_PARTITION)))


def copy(broker: InProcessBroker, *entries: SegmentEntry) -> None:
    async def both() -> None:
        for entry in entries:
            await metadata(broker).add(entry)
            await metadata(broker).update(an_update(entry, FINISHED))

    broker.run(both)


def starts(broker: InProcessBroker) -> list[int]:
    return broker.run(lambda: [entry.start_offset for entry in metadata(broker).entries(A_PARTITION, 0)])


def test_a_broker_knows_its_entries_again_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings, logs = tiered(tmp_path / "shared"), tmp_path / "logs"
    with a_broker_in_process(logs, **settings) as broker:
        follow(broker)
        copy(broker, an_entry(1, 0, 99), an_entry(2, 100, 199))
        (topic,) = metadata_of(broker, METADATA_TOPIC).topics
        assert (topic.is_internal, len(topic.partitions)) == (False, 3)
        stored, _ = broker.run(lambda: broker.services.administration.store.get(config_path("topics", METADATA_TOPIC)))
        assert {b'"retention.ms":"-1"', b'"cleanup.policy":"delete"', b'"remote.storage.enable":"false"'} <= set(
            stored.partition(b'"config":{')[2].rstrip(b"}").split(b",")
        )
    assert list(logs.glob("remote-log-metadata-*.snapshot"))
    assert "Unknown configuration" not in caplog.text
    with a_broker_in_process(logs, **settings) as broker:
        follow(broker)
        assert starts(broker) == [0, 100]
        log = broker.run(lambda: metadata(broker).reader.log_of(A_PARTITION))
        assert (log.applied, log.position) == (0, 4)


@pytest.mark.cluster
def test_brokers_read_what_others_write_also_when_the_leader_of_the_metadata_is_gone(tmp_path: Path) -> None:
    settings = tiered(tmp_path / "shared") | {f"{PREFIX}topic.replication.factor": "3", "controlled.shutdown.enable": "false"}
    with three_brokers(tmp_path, **settings) as brokers:
        for broker in brokers:
            follow(broker)
        copy(brokers[1], an_entry(1, 0, 99))
        until(lambda: all(starts(broker) == [0] for broker in brokers))
        index = brokers[1].run(lambda: metadata(brokers[1]).reader.index_of(A_PARTITION))
        leader, _ = brokers[1].services.metadata.leader_of(METADATA_TOPIC, index)
        gone = next((broker for broker in brokers if broker.services.broker_id == leader and leader != 0), brokers[2])
        brokers.remove(gone)
        gone.stop()
        copy(brokers[0], an_entry(2, 100, 199))
        copy(brokers[1], an_entry(3, 200, 299))
        until(lambda: all(starts(broker) == [0, 100, 200] for broker in brokers))


def test_the_command_lists_copies_and_tells_which_are_read(tmp_path: Path) -> None:
    with a_broker_in_process(tmp_path / "logs", **tiered(tmp_path / "shared")) as broker:
        follow(broker)
        copy(broker, an_entry(1, 0, 99), an_entry(2, 0, 199), an_entry(3, 200, 299, custom=b"\x01"))
        broker.run(lambda: metadata(broker).add(an_entry(4, 300, 399)))

        def listed(*options: str) -> list[tuple[int, str, bool]]:
            done = CliRunner().invoke(main, ["remote", "list", "-b", broker.bootstrap, "--json", *options])
            assert done.exit_code == 0, done.output
            return [(each["end_offset"], each["state"], each["is_read"]) for each in json.loads(done.stdout)]

        replaced, going = (99, FINISHED.name, False), (399, "COPY_SEGMENT_STARTED", False)
        read = [(199, FINISHED.name, True), (299, FINISHED.name, True)]
        assert listed() == [replaced, *read, going]
        assert listed("--unfinished", A_PARTITION.topic) == [replaced, going]
        assert listed("another-topic") == []
        assert listed("another-*") == []
        assert listed("--unfinished", f"{A_PARTITION.topic[:1]}*") == [replaced, going]
        table = CliRunner().invoke(main, ["remote", "list", "-b", broker.bootstrap])
        assert "replaced" in table.stdout


def test_the_command_tells_in_one_line_of_records_that_it_cannot_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with a_broker_in_process(tmp_path / "logs", **tiered(tmp_path / "shared")) as broker:
        follow(broker)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(3):
            for value in (b"", b"\x01\x00\x01of another version", *[b"rubbish"] * 20):
                producer.produce(METADATA_TOPIC, value, partition=partition)
        assert producer.flush(30) == 0
        copy(broker, an_entry(1, 0, 99))
        caplog.clear()
        done = CliRunner().invoke(main, ["remote", "list", "-b", broker.bootstrap, "--json"])
        assert done.exit_code == 0, done.output
        assert [each["start_offset"] for each in json.loads(done.stdout)] == [0]
        (line,) = done.stderr.splitlines()
        assert line.startswith(METADATA_TOPIC)
        assert line.endswith("(66 records left out in all)")
        assert not [record for record in caplog.records if "is left out" in record.getMessage()]


def test_the_command_finds_copies_that_the_store_does_not_have(tmp_path: Path) -> None:
    settings = tiered(tmp_path / "shared")
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    folder = tmp_path / "shared" / ROOT / partition_directory(A_PARTITION)
    entries = [an_entry(1, 0, 99), an_entry(2, 100, 199), an_entry(3, 200, 299)]
    with a_broker_in_process(tmp_path / "logs", **settings) as broker:
        follow(broker)
        copy(broker, *entries)
        folder.mkdir(parents=True, exist_ok=True)
        for entry, size in zip(entries, (1024, 1000), strict=False):
            for suffix in (LOG_SUFFIX, *SUFFIX_OF.values()):
                (folder / f"{segment_name(entry)}{suffix}").write_bytes(bytes(size))
        done = CliRunner().invoke(main, ["remote", "check", "-b", broker.bootstrap, "--config", str(properties), "--json"])
        assert done.exit_code == 1, done.output
        assert [each["start_offset"] for each in json.loads(done.stdout)] == [100, 200]
