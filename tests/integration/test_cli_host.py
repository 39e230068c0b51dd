"""`ottla cluster up --config`: brokers of one host from one file, beside ZooKeeper; one address of metrics; files that are refused."""

import http.client
import json
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.supervisor.layout import free_ports
from tests.integration.test_cli_cluster import ClusterCommand, a_detached_cluster
from tests.support.broker_process import eventually
from tests.support.command_line import CommandLine
from tests.support.zookeeper import a_chroot

pytestmark = pytest.mark.cluster

SECONDS = 30.0


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def samples(port: int, name: str) -> dict[str, float]:
    """The values of a metric by broker."""
    families = text_string_to_metric_families(get(port, "/metrics")[1])
    return {sample.labels["broker"]: sample.value for family in families for sample in family.samples if sample.name == name}


def test_one_file_makes_the_brokers_of_a_host_and_one_address_tells_of_all(tmp_path: Path) -> None:
    connect = a_chroot()
    file = tmp_path / "host.properties"
    text = f"zookeeper.connect={connect}\nlisteners=PLAINTEXT://{{host}}:{{port}}\nlog.dirs={{dir}}/first,{tmp_path}/second-{{id}}\n"
    file.write_text(text)
    (metrics,) = free_ports(1)
    host = ("2", "--config", str(file), "--first-id", "8", "--metrics", f"127.0.0.1:{metrics}")
    with a_detached_cluster(tmp_path / "a", *host) as cluster:
        brokers = cluster.brokers()
        assert [(broker["id"], broker["rack"]) for broker in brokers] == [(8, socket.gethostname()), (9, socket.gethostname())]
        assert (tmp_path / "a" / "broker-9" / "first" / "meta.properties").exists()
        assert (tmp_path / "second-9" / "meta.properties").exists()
        line = CommandLine(f"127.0.0.1:{brokers[0]['port']}")
        line("topics", "create", "t", "-p", "3", "-r", "2")  # one rack for both is none to Kafka's placement

        assert samples(metrics, "ottla_cluster_broker_up") == {"8": 1.0, "9": 1.0}
        assert samples(metrics, "kafka_server_replicamanager_partitioncount") == {"8": 3.0, "9": 3.0}
        assert get(metrics, "/health") == (200, "broker 8: ready\nbroker 9: ready\n")
        cluster("kill", "9", "--stays-down")
        assert get(metrics, "/health") == (503, "broker 8: ready\nbroker 9: stopped\n")
        assert samples(metrics, "ottla_cluster_broker_up") == {"8": 1.0, "9": 0.0}
        assert samples(metrics, "kafka_server_replicamanager_partitioncount") == {"8": 3.0}

        file.write_text(text + "num.partitions=5{x}\n")
        refused = cluster("start", "9", status=1).stderr
        assert refused.startswith(f"ottla: {file}: num.partitions=5{{x}}: {{x}} is no placeholder")
        file.write_text(text + "num.partitions=5\n")
        cluster("start", "9")
        eventually(lambda: samples(metrics, "ottla_cluster_broker_up") == {"8": 1.0, "9": 1.0}, what="both answer")
        assert "num.partitions=5" in (tmp_path / "a" / "broker-9.properties").read_text().splitlines()

        other = ClusterCommand(tmp_path / "b")
        taken = other("up", "1", "--base-port", "0", "--first-id", "9", "--zookeeper", connect, "--detach", status=1).stderr
        (reason,) = taken.splitlines()
        assert reason.startswith(f"ottla: zookeeper.connect={connect}: ")
        assert "9" in reason.removeprefix(f"ottla: zookeeper.connect={connect}: ")
        assert not (tmp_path / "b" / "broker-9").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "FILE cannot be read: No such file or directory"),
        ("broker.rack={rack}\n", "FILE: broker.rack={rack}: {rack} is no placeholder; those are {id}, {port}, {host}, {dir}"),
        ("log.dirs=data\n", "FILE: log.dirs=data: brokers 0 and 1 would both use HERE/data; put {id} or {dir} into its name"),
        (
            "ottla.metrics.listener=127.0.0.1:29404\n",
            "FILE: ottla.metrics.listener=127.0.0.1:29404: brokers 0 and 1 would both listen at port 29404; put {port} or {id} into it",
        ),
    ],
)
def test_a_file_by_which_brokers_could_not_run_is_one_line_and_nothing_is_made(text: str | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "host.properties"
    if text is not None:
        file.write_text(text)
    refused = ClusterCommand(tmp_path / "cluster")("up", "2", "--config", str(file), "--base-port", "0", "--detach", status=1)
    expected = reason.replace("FILE", str(file)).replace("HERE", str(Path.cwd()))
    assert refused.stderr == f"ottla: {expected}\n"
    assert not (tmp_path / "cluster").exists()


def test_a_mistyped_key_is_told_where_the_command_is_typed_and_the_brokers_start(tmp_path: Path) -> None:
    command = ("up", "1", "--set", "num.partitons=3", "--base-port", "0", "--detach", "--json")
    cluster = ClusterCommand(tmp_path)
    up = cluster(*command)
    cluster("down")
    assert len(json.loads(up.stdout)["brokers"]) == 1
    (told,) = up.stderr.splitlines()
    assert told.startswith("Unknown configuration num.partitons: no key of a broker has this name (did you mean num.partitions?)")


def test_a_cluster_without_a_number_has_the_brokers_that_it_had(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "2", "--first-id", "4") as cluster:
        cluster("down")
        up = json.loads(cluster("up", "--per-core", "--base-port", "0", "--detach", "--json").stdout)
        assert [broker["id"] for broker in up["brokers"]] == [4, 5]


def test_the_addresses_of_a_detached_cluster_are_those_that_it_has_also_when_it_starts_again(tmp_path: Path) -> None:
    cluster = ClusterCommand(tmp_path)
    try:
        up = json.loads(cluster("up", "2", "--base-port", "0", "--detach", "--json").stdout)["brokers"]
        known = json.loads(cluster("status", "--json").stdout)["brokers"]
        assert [broker["address"] for broker in up] == [f"127.0.0.1:{broker['port']}" for broker in known]
        cluster("down")
        assert json.loads(cluster("up", "--detach", "--json").stdout)["brokers"] == up
    finally:
        cluster("down")
