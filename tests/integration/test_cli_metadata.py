"""`ottla metadata`: a cluster moves from its file to a real ZooKeeper and back with its data, and Apache Kafka joins it there."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.command_line import CommandLine
from tests.support.large_metadata import write_topics
from tests.support.mixed_cluster import APACHE, QUICK, ApacheBroker
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper

pytestmark = [*needs_apache_kafka, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 90.0
TOPICS = 10_000
MOST_SECONDS = 120.0
"""For one direction, with the start that is killed in the middle of it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that the tests of this module share; each has a path of its own."""
    with a_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def move(cluster: Cluster, **settings: str | None) -> None:
    """Give all brokers, which are stopped, other settings (None removes a key), and start them."""
    for broker in cluster.brokers.values():
        if not isinstance(broker, ApacheBroker):
            for name, value in settings.items():
                broker.properties.pop(name.replace("_", "."), None)
                if value is not None:
                    broker.properties[name.replace("_", ".")] = value
            broker.launch()
    assert all(broker.wait_until_ready() for broker in cluster.brokers.values())
    cluster.wait_until_registered()


def keys_of(line: CommandLine, topic: str) -> list[str]:
    return sorted(record["value"] for record in line("consume", "-e", "--json", topic).json_lines)


@pytest.mark.soak
def test_a_cluster_moves_to_zookeeper_where_apache_kafka_joins_and_back(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "ottla", 2) as cluster, a_zookeeper(tmp_path / "zk") as zookeeper:
        line = CommandLine(cluster.bootstrap)
        cluster.create_topic("t", replicas=[[0, 1], [1, 0]], retention_ms=4_000_000)
        line("produce", "t", input="".join(f"record {number}\n" for number in range(200)))
        line("consume", "-G", "readers", "-e", "-c", "50", "t")
        expected = keys_of(line, "t")
        described = line("topics", "describe", "t", "--json").json
        file = tmp_path / "ottla" / "metadata.db"
        direction = ("--file", str(file), "--zookeeper", zookeeper.connect)
        refused = line("metadata", "export", *direction, status=1)
        assert "has live brokers (0, 1): stop all" in refused.err
        cluster.stop()

        shown = line("metadata", "export", *direction, "--dry-run")
        assert "+ /brokers/topics/t" in shown.lines
        assert set(zookeeper.tree()) == {"/"}
        assert "is copied" in line("metadata", "export", *direction).out
        move(cluster, ottla_metadata_file=None, zookeeper_connect=zookeeper.connect)
        live = line("metadata", "import", "--file", str(tmp_path / "live.db"), "--zookeeper", zookeeper.connect, status=1)
        assert "has live brokers (0, 1): stop all" in live.err
        assert (len(live.err.splitlines()), (tmp_path / "live.db").exists()) == (1, False)
        assert keys_of(line, "t") == expected
        assert line("topics", "describe", "t", "--json").json[0]["id"] == described[0]["id"]
        assert line("topics", "describe", "t", "--json").json[0]["configs"] == described[0]["configs"]
        (group,) = line("groups", "describe", "readers", "--json").json
        assert sum(each["offset"] or 0 for each in group["partitions"]) == 50

        with ApacheKafka(tmp_path / "apache", 1, QUICK, first_id=APACHE, zookeeper=zookeeper) as apache:
            cluster.brokers[APACHE] = ApacheBroker(apache, APACHE)
            cluster.wait_until_registered()
            moves = {"version": 1, "partitions": [{"topic": "t", "partition": at, "replicas": [0, 1, APACHE]} for at in (0, 1)]}
            (tmp_path / "plan.json").write_text(json.dumps(moves))
            line("topics", "reassign", "execute", str(tmp_path / "plan.json"), "--wait")
            for broker in cluster.others(APACHE):
                assert broker.stop() == 0
            assert cluster.controller_id() == APACHE
            assert keys_of(CommandLine(cluster.broker(APACHE).bootstrap), "t") == expected
            for broker in cluster.others(APACHE):
                broker.start()
            cluster.wait_until_registered()
            cluster.wait_until_isr_is("t", 0, 0, 1, APACHE)
            assert cluster.broker(APACHE).stop() == 0
            del cluster.brokers[APACHE]
        cluster.stop()

        back = str(tmp_path / "back.db")
        line("metadata", "import", "--file", back, "--zookeeper", zookeeper.connect)
        move(cluster, zookeeper_connect=None, ottla_metadata_file=back)
        assert keys_of(line, "t") == expected


@pytest.mark.soak
def test_thousands_of_topics_move_both_ways_also_when_killed_in_between(server: ZooKeeperServer, tmp_path: Path) -> None:
    file, back = tmp_path / "metadata.db", tmp_path / "back.db"
    write_topics(file, TOPICS)
    connect = f"{server.connect}/large"
    began = time.monotonic()
    kill_when(start("export", file, connect), lambda: count_of(server, "/large/brokers/topics") > TOPICS // 10)
    assert count_of(server, "/large/cluster/id") < 0
    exported = finish(start("export", file, connect))
    assert exported["resumed"]
    seconds = time.monotonic() - began

    began = time.monotonic()
    log = back.with_name("back.db-wal")
    kill_when(start("import", back, connect), lambda: log.exists() and log.stat().st_size > 200_000)
    imported = finish(start("import", back, connect))
    back_seconds = time.monotonic() - began
    print(f"exported in {seconds:.1f} s, imported in {back_seconds:.1f} s")
    assert max(seconds, back_seconds) < MOST_SECONDS
    assert imported["nodes"] == exported["nodes"] > 5 * TOPICS
    assert finish(start("import", back, connect))["was_complete"]


def start(direction: str, file: Path, connect: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ottla", "metadata", direction, "--file", str(file), "--zookeeper", connect, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def kill_when(command: subprocess.Popen[str], is_in_the_middle: Callable[[], bool]) -> None:
    """Kill the command once some of its work is done."""
    with command:
        try:
            eventually(lambda: is_in_the_middle() or command.poll() is not None, SECONDS, "some topics are written")
        finally:
            command.kill()
        assert command.wait(SECONDS) == -signal.SIGKILL


def finish(command: subprocess.Popen[str]) -> dict[str, int]:
    with command:
        out, err = command.communicate(timeout=2 * SECONDS)
    assert command.returncode == 0, err
    found: dict[str, int] = json.loads(out)
    return found


def count_of(server: ZooKeeperServer, path: str) -> int:
    """The number of children of a node; -1 without the node."""
    client = KazooClient(server.connect)
    client.start()
    try:
        stat = client.exists(path)
        return -1 if stat is None else int(stat.numChildren)
    finally:
        client.stop()
        client.close()


def test_nodes_are_protected_on_the_way_when_the_brokers_protect_them(server: ZooKeeperServer, tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    write_topics(file, 3)
    connect = f"{server.connect}/protected"
    secured = ("--set", "zookeeper.set.acl=true", "--set", "ottla.zookeeper.auth=ottla:secret")
    line = CommandLine("")
    line("metadata", "export", "--file", str(file), "--zookeeper", connect, *secured)
    client = KazooClient(connect)
    client.start()
    try:
        acls, _ = client.get_acls("/brokers/topics")
        assert [(acl.id.scheme, acl.id.id.partition(":")[0], acl.acl_list) for acl in acls] == [
            ("digest", "ottla", ["ALL"]),
            ("world", "anyone", ["READ"]),
        ]
        with pytest.raises(NoAuthError):
            client.set("/brokers/topics", b"")
        with pytest.raises(NoAuthError):
            client.get("/config/users")
    finally:
        client.stop()
        client.close()
    back = ("metadata", "import", "--file", str(tmp_path / "back.db"), "--zookeeper", connect)
    refused = line(*back, status=1)
    assert "/config/" in refused.err
    assert "NoAuth" in refused.err
    line(*back, *secured)


def test_what_cannot_be_used_is_one_line_and_nothing_is_made(server: ZooKeeperServer, tmp_path: Path) -> None:
    line = CommandLine("")
    target = tmp_path / "metadata.db"
    missing = line("metadata", "export", "--file", str(target), "--zookeeper", f"{server.connect}/none", status=1)
    assert missing.err == f"ottla: there is no metadata file {target}\n"
    empty = line("metadata", "import", "--file", str(target), "--zookeeper", f"{server.connect}/none", status=1)
    assert empty.err == f"ottla: ZooKeeper {server.connect}/none holds no cluster: there is no /cluster/id\n"
    broken = tmp_path / "broken.db"
    broken.write_text("no database " * 100)
    damaged = line("metadata", "export", "--file", str(broken), "--zookeeper", server.connect, status=1)
    assert "file is not a database" in damaged.err
    assert len(damaged.err.splitlines()) == 1
    dead = ("--zookeeper", "127.0.0.1:1", "--set", "zookeeper.connection.timeout.ms=300")
    write_topics(tmp_path / "good.db", 1)
    unreachable = line("metadata", "export", "--file", str(tmp_path / "good.db"), *dead, status=1)
    assert "no session with ZooKeeper within 300 ms" in unreachable.err
    client = KazooClient(server.connect)
    client.start()
    try:
        client.ensure_path("/occupied/brokers/topics/t")
        occupied = line("metadata", "export", "--file", str(tmp_path / "good.db"), "--zookeeper", f"{server.connect}/occupied", status=1)
        assert f"ZooKeeper {server.connect}/occupied is not empty (" in occupied.err
        assert len(occupied.err.splitlines()) == 1
        assert (client.get_children("/occupied"), client.get_children("/occupied/brokers/topics")) == (["brokers"], ["t"])
    finally:
        client.stop()
        client.close()
    assert not target.exists()
    assert count_of(server, "/none") == -1
