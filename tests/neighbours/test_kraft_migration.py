"""A cluster of Ottla goes from its file to KRaft: `ottla metadata export`, Apache Kafka 3.9 on the same directories, its own migration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.java import QUICK_OPTIONS, JavaServer, java_command
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.apache_kafka.ports import free_ports
from tests.support.apache_kafka.tools import run_tool
from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.command_line import CommandLine
from tests.support.neighbours.artifacts import whole
from tests.support.zookeeper import ZooKeeperServer, a_zookeeper

pytestmark = [*needs_apache_kafka, whole, pytest.mark.slow, pytest.mark.timeout(600)]

CONTROLLER_ID = 3000
BROKERS = (0, 1)
RECORDS = 200


@contextmanager
def a_kraft_controller(directory: Path, cluster_id: str, zookeeper: ZooKeeperServer, voters: str) -> Iterator[JavaServer]:
    """A controller of Apache Kafka that takes the metadata over once all brokers of the cluster are ready for it."""
    properties = {
        "process.roles": "controller",
        "node.id": str(CONTROLLER_ID),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{voters.partition('@')[2]}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(directory / "kraft"),
        "zookeeper.connect": zookeeper.connect,
        "zookeeper.metadata.migration.enable": "true",
    }
    path = directory / "controller.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    formatted = run_tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(path))
    assert formatted.returncode == 0, formatted.stderr
    server = JavaServer("the KRaft controller", directory / "controller.log")
    server.launch(java_command(("-Xmx256m", *QUICK_OPTIONS), "kafka.Kafka", str(path)))
    try:
        yield server
    finally:
        server.end()


def fill(cluster: Cluster) -> None:
    """Topics with replicas, configurations, records and the offsets of a group; a user and a quota."""
    line = CommandLine(cluster.bootstrap)
    cluster.create_topic("t", replicas=[[0, 1], [1, 0]], retention_ms=4_000_000)
    cluster.create_topic("compacted", partitions=3, cleanup_policy="compact")
    line("produce", "t", input="".join(f"record {number}\n" for number in range(RECORDS)))
    line("consume", "-G", "readers", "-e", "-c", "50", "t")
    line("users", "add", "alice", input="alice-secret\n")
    line("quotas", "set", "producer_byte_rate=1000000", "--user", "alice")


def facts(bootstrap: str) -> dict[str, object]:
    """What must be the same afterwards."""
    line = CommandLine(bootstrap)
    described = line("topics", "describe", "t", "compacted", "--json").json
    (group,) = line("groups", "describe", "readers", "--json").json
    return {
        "topics": [(each["topic"], each["id"], each["configs"], [part["replicas"] for part in each["partitions"]]) for each in described],
        "records": sorted(record["value"] for record in line("consume", "-e", "--json", "t").json_lines),
        "users": line("users", "list", "--json").json,
        "quotas": line("quotas", "list", "--user", "alice", "--json").json,
        "offsets": sorted((part["topic"], part["partition"], part["offset"]) for part in group["partitions"]),
    }


def test_a_cluster_goes_from_its_file_by_zookeeper_to_kraft(tmp_path: Path) -> None:
    with a_cluster(tmp_path / "ottla", len(BROKERS)) as cluster, a_zookeeper(tmp_path / "zk") as zookeeper:
        fill(cluster)
        before = facts(cluster.bootstrap)
        data = {broker_id: cluster.broker(broker_id).data for broker_id in BROKERS}
        cluster.stop()
        line = CommandLine(cluster.bootstrap)
        line("metadata", "export", "--file", str(tmp_path / "ottla" / "metadata.db"), "--zookeeper", zookeeper.connect)
        cluster_id = json.loads(zookeeper.tree()["/cluster/id"][0] or b"")["id"]
        (port,) = free_ports(1)
        voters = f"{CONTROLLER_ID}@127.0.0.1:{port}"
        migration = {
            "inter.broker.protocol.version": "3.9",
            "zookeeper.metadata.migration.enable": "true",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
        apache = ApacheKafka(
            tmp_path / "apache",
            len(BROKERS),
            migration,
            zookeeper=zookeeper,
            config_of=lambda broker_id, _: {"log.dirs": str(data[broker_id])},
        )
        with a_kraft_controller(tmp_path, cluster_id, zookeeper, voters) as controller, apache:
            eventually(lambda: "Completed migration of metadata from ZooKeeper to KRaft" in controller.said(), what="the migration")
            assert facts(apache.bootstrap) == before
            assert json.loads(zookeeper.tree()["/controller"][0] or b"")["brokerid"] == CONTROLLER_ID
            CommandLine(apache.bootstrap)("topics", "create", "new", "--partitions", "2")
            assert "/brokers/topics/new" in zookeeper.tree()
