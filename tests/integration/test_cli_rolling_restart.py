"""`ottla cluster rolling-restart` with real brokers: clients go on meanwhile, and trouble leaves the other brokers alone."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.test_cli_cluster import ClusterCommand, a_detached_cluster
from tests.support.broker_process import eventually
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.cluster


def pids(cluster: ClusterCommand) -> dict[int, int]:
    return {broker["id"]: broker["pid"] for broker in cluster.brokers()}


def test_every_broker_is_another_process_afterwards_and_producers_lose_nothing(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "3") as cluster:
        line = CommandLine(",".join(f"127.0.0.1:{broker['port']}" for broker in cluster.brokers()))
        line("topics", "create", "t", "-p", "6", "-r", "3")
        before = pids(cluster)
        controller = next(broker["id"] for broker in cluster.brokers() if broker["role"] == "controller")
        producer = line.start("produce", "--rate", "100", "t")
        assert producer.stdin is not None
        producer.stdin.write(b"".join(b"%d\n" % number for number in range(1500)))
        producer.stdin.close()
        producer.stdin = None
        done = cluster("rolling-restart", "--json")
        producer.communicate(timeout=60)
        assert producer.returncode == 0
        restarted = json.loads(done.stdout)
        assert len(restarted) == 3
        assert restarted[-1]["name"] == str(controller)
        assert restarted[-1]["result"].startswith("restarted in ")
        after = pids(cluster)
        assert all(before[broker_id] != after[broker_id] for broker_id in before)
        assert len(line("consume", "-e", "t").lines) == 1500


def test_a_broker_that_does_not_come_back_ends_the_restart_before_the_others(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "2") as cluster:
        before = pids(cluster)
        controller = next(broker["id"] for broker in cluster.brokers() if broker["role"] == "controller")
        first = 1 - controller
        (tmp_path / f"broker-{first}" / "lost+found").mkdir()
        refused = cluster("rolling-restart", status=1)
        assert "A log directory may hold nothing else" in refused.stderr
        assert f"not restarted: broker {first}, {controller}." in refused.stderr
        assert pids(cluster)[controller] == before[controller]
        again = cluster("rolling-restart", "--json", status=1)
        assert json.loads(again.stdout) == []
        assert f"broker {first} is failed" in again.stderr


def test_no_broker_is_restarted_while_a_replica_is_not_in_sync(tmp_path: Path) -> None:
    with a_detached_cluster(tmp_path, "2", "--set", "zookeeper.session.timeout.ms=60000") as cluster:
        before = cluster.brokers()
        line = CommandLine(f"127.0.0.1:{before[0]['port']}")
        line("topics", "create", "t", "-r", "2")
        os.kill(before[1]["pid"], signal.SIGSTOP)
        try:
            refused = cluster("rolling-restart", "--timeout", "2", status=1)
        finally:
            os.kill(before[1]["pid"], signal.SIGCONT)
        assert "not restarted: broker 0, 1." in refused.stderr
        eventually(lambda: pids(cluster) == {broker["id"]: broker["pid"] for broker in before}, what="the same processes")
