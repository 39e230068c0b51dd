"""`ottla cluster grow` and `shrink` on a host with ZooKeeper and one file for all brokers, while clients produce with acks=all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.test_cli_drain import SteadyProducer
from tests.integration.test_cli_cluster import ClusterCommand, a_detached_cluster
from tests.support.broker_process import eventually
from tests.support.command_line import CommandLine
from tests.support.zookeeper import a_chroot

pytestmark = pytest.mark.cluster

SECONDS = 600.0
"""For a command that restarts or moves many brokers."""


def host_file(directory: Path, *lines: str) -> Path:
    """The one file of all brokers of the host."""
    file = directory / "host.properties"
    file.write_text("\n".join((f"zookeeper.connect={a_chroot()}", "listeners=PLAINTEXT://{host}:{port}", "log.dirs={dir}", *lines)))
    return file


def line_to(cluster: ClusterCommand) -> CommandLine:
    """Commands against the first broker, which stays."""
    return CommandLine(f"127.0.0.1:{cluster.brokers()[0]['port']}")


def held(line: CommandLine) -> dict[int, int]:
    """The replicas of each broker."""
    return {each["id"]: each["replicas"] for each in line("brokers", "list", "--json").json["brokers"]}


def written(line: CommandLine, topic: str) -> int:
    return sum(int(row[3]) for row in line("topics", "offsets", topic).rows)


def live_through(directory: Path, few: int, many: int) -> None:
    """From few brokers to many and back, with a rolling restart at the larger size. Nothing acknowledged is lost."""
    file = host_file(directory, "default.replication.factor=2", "offsets.topic.replication.factor=2")
    with a_detached_cluster(directory / "host", str(few), "--config", str(file)) as cluster:
        cluster.seconds = SECONDS
        line = line_to(cluster)
        line("topics", "create", "orders", "-p", "12", "-r", "2")
        producer = SteadyProducer(line.bootstrap, "orders")
        try:
            eventually(lambda: producer.acknowledged > 50)
            grown = cluster("grow", str(many), "--move")
            assert grown.stdout.count("ready at 127.0.0.1:") == many - few
            counts = held(line)
            assert counts.keys() == set(range(many))
            assert max(counts.values()) - min(counts.values()) <= 1
            assert f"has {many} brokers already" in cluster("grow", str(many)).stderr

            line("topics", "create", "later", "-p", str(many), "-r", "2")
            file.write_text(file.read_text() + "\nnum.partitions=7")
            cluster("rolling-restart")
            before = producer.acknowledged
            eventually(lambda: producer.acknowledged > before)

            shrunk = cluster("shrink", str(few))
            assert [row.split(":")[0] for row in shrunk.stdout.splitlines()] == [f"broker {number}" for number in range(few, many)]
        finally:
            producer.stop()
        assert producer.failed == []
        assert written(line, "orders") == producer.acknowledged
        assert held(line).keys() == set(range(few))
        assert cluster.states() == ["ready"] * few
        assert len(line("consume", "-e", "orders").lines) == producer.acknowledged
        applied = (directory / "host" / "broker-0.properties").read_text().splitlines()
        assert "num.partitions=7" in applied
        cluster("down")
        cluster("up", "--config", str(file), "--base-port", "0", "--detach")
        assert len(cluster.brokers()) == few


@pytest.mark.slow
def test_a_host_grows_restarts_and_shrinks_while_clients_produce(tmp_path: Path) -> None:
    live_through(tmp_path, 2, 4)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_host_of_eight_brokers_grows_from_four_restarts_and_shrinks(tmp_path: Path) -> None:
    live_through(tmp_path, 4, 8)


@pytest.mark.slow
def test_a_host_does_not_shrink_below_the_replicas_and_continues_after_its_command_was_killed(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path / "host", "3", "--config", str(host_file(tmp_path))) as cluster:
        line = line_to(cluster)
        line("topics", "create", "three", "-r", "3")
        refused = cluster("shrink", "2", status=1).stderr
        assert "three-0 has 3 replicas, and only 2 other brokers are alive" in refused
        assert cluster.states() == ["ready"] * 3
        line("topics", "delete", "three")

        line("topics", "create", "many", "-p", "40", "-r", "2")
        line("produce", "many", input="".join(f"{number} {'x' * 2000}\n" for number in range(2000)))
        command = [sys.executable, "-m", "ottla", "cluster", "shrink", "2", "--at-once", "1", "--dir", str(cluster.directory)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
            before = held(line)[2]
            eventually(lambda: held(line)[2] < before, what="a partition was moved")
            killed.send_signal(signal.SIGKILL)
        assert cluster.states() == ["ready"] * 3
        shrunk = cluster("shrink", "2")
        assert shrunk.stdout == "broker 2: drained, stopped and removed\n"
        assert "new topics are to have 2 replicas by default" in shrunk.stderr
        assert len(line("consume", "-e", "many").lines) == 2000
        assert cluster("shrink", "2", "--json").stdout.strip() == "[]"
        assert "`ottla cluster shrink 1` takes some away" in cluster("grow", "1", status=1).stderr


def test_a_broker_that_does_not_start_is_no_broker_of_the_host(tmp_path: Path) -> None:
    file = host_file(tmp_path)
    with a_detached_cluster(tmp_path / "host", "1", "--config", str(file)) as cluster:
        (tmp_path / "host" / "broker-1").write_text("no directory")
        refused = cluster("grow", "2", status=1).stderr
        assert f"{tmp_path}/host/broker-1" in refused
        file.write_text(file.read_text() + "\nottla.metrics.listener=127.0.0.1:29499")
        refused = cluster("grow", "3", status=1).stderr
        assert f"ottla: {file}: ottla.metrics.listener=127.0.0.1:29499: brokers 0 and 1 would both listen at port 29499" in refused
        assert cluster.states() == ["ready"]
        assert "no supervisor runs" in ClusterCommand(tmp_path / "none")("grow", "2", status=1).stderr
