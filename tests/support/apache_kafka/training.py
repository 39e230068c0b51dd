"""Writes the class archives: servers and tools do once what tests have them do. Called by `tests.support.prerequisites`."""

import tempfile
from pathlib import Path

from kazoo.client import KazooClient

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.class_archives import BROKER, TOOLS, ZOOKEEPER, ZOOKEEPER_ALONE, archive, writing
from tests.support.apache_kafka.jars import ensure_jars
from tests.support.apache_kafka.java import QUICK_OPTIONS
from tests.support.apache_kafka.tools import PROGRAM, ToolJvm
from tests.support.apache_kafka.zookeeper import ZooKeeper
from tests.support.zookeeper import ZooKeeperServer, zookeeper_jars

_TOOL = "org.apache.kafka.tools."


def write_missing_archives() -> None:
    """Fetch the jars and write those archives that are not there. Raises ToolMissingError, DidNotStartError."""
    libs = ensure_jars()
    if not all(archive(name).exists() for name in (BROKER, TOOLS, ZOOKEEPER)):
        _write_those_of_apache_kafka(libs)
    jars = zookeeper_jars()
    if not archive(ZOOKEEPER_ALONE, jars).exists():
        _write_that_of_zookeeper(jars)


def _write_those_of_apache_kafka(libs: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="archives-", dir=libs) as scratch:
        written = Path(scratch)
        zookeeper = ZooKeeper(written / "zookeeper-files", options=writing(written / ZOOKEEPER))
        options = (*QUICK_OPTIONS, *writing(written / BROKER))
        zookeeper.start()
        try:
            kafka = ApacheKafka(written / "kafka", heap="256m", options=options, zookeeper=zookeeper)
            # As a source, so that the jar of the program is not in the class path, which may only be longer where an archive is used.
            with kafka, ToolJvm(writing(written / TOOLS), str(PROGRAM)) as tools:
                for call in _calls(kafka.bootstrap):
                    tools.run(call, "", timeout=60)
        finally:
            zookeeper.stop()
        for name in (BROKER, TOOLS, ZOOKEEPER):
            _keep(written / name, archive(name))


def _write_that_of_zookeeper(jars: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="archives-", dir=jars) as scratch:
        written = Path(scratch, ZOOKEEPER_ALONE)
        server = ZooKeeperServer(Path(scratch, "zookeeper-files"), options=writing(written))
        server.start()
        try:
            client = KazooClient(server.connect)
            client.start()
            client.create("/a/b", b"1", ephemeral=True, makepath=True)
            client.get("/a/b", watch=lambda _: None)
            client.set("/a/b", b"2")
            client.get_children("/a")
            transaction = client.transaction()
            transaction.create("/a/c", b"")
            transaction.commit()
            client.stop()
            client.close()
        finally:
            server.stop()
        _keep(written, archive(ZOOKEEPER_ALONE, jars))


def _keep(written: Path, place: Path) -> None:
    if written.exists():  # Java before 13 writes none
        written.rename(place)


def _calls(bootstrap: str) -> list[tuple[str, ...]]:
    at = ("--bootstrap-server", bootstrap)
    return [
        (f"{_TOOL}TopicCommand", *at, "--create", "--topic", "t", "--partitions", "2"),
        (f"{_TOOL}TopicCommand", *at, "--describe"),
        ("kafka.admin.ConfigCommand", *at, "--describe", "--all", "--entity-type", "topics", "--entity-name", "t"),
        (f"{_TOOL}ProducerPerformance", *_perf(bootstrap)),
        (f"{_TOOL}consumer.ConsoleConsumer", *at, "--topic", "t", "--from-beginning", "--max-messages", "10", "--group", "g"),
        (f"{_TOOL}GetOffsetShell", *at, "--topic", "t"),
        (f"{_TOOL}consumer.group.ConsumerGroupCommand", *at, "--describe", "--all-groups"),
        (f"{_TOOL}LogDirsCommand", *at, "--describe"),
        (f"{_TOOL}TopicCommand", *at, "--delete", "--topic", "t"),
    ]


def _perf(bootstrap: str) -> tuple[str, ...]:
    sizes = ("--num-records", "10", "--record-size", "100", "--throughput", "-1")
    return ("--topic", "t", *sizes, "--producer-props", f"bootstrap.servers={bootstrap}", "compression.type=lz4")
