"""`ottla topics reassign` and `elect` on three brokers in two racks."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.command_line import CommandLine


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("reassign"), 3, auto_leader_rebalance_enable="false") as running:
        yield running


@pytest.fixture
def ottla(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap)


def a_plan(path: Path, topic: str, *replicas: list[int]) -> str:
    partitions = [{"topic": topic, "partition": number, "replicas": brokers} for number, brokers in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def produce(cluster: Cluster, topic: str, records: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for _ in range(records):
        producer.produce(topic, bytes(size), partition=0)
    assert producer.flush(20) == 0


def replicas_of(ottla: CommandLine, topic: str) -> list[list[int]]:
    (described,) = ottla("topics", "describe", topic, "--json").json
    return [part["replicas"] for part in described["partitions"]]


def configs_of(ottla: CommandLine, kind: str, name: str) -> dict[str, str]:
    return {row[0]: row[1] for row in ottla("configs", "describe", kind, name).rows}


def test_a_topic_is_planned_moved_and_verified(cluster: Cluster, ottla: CommandLine, tmp_path: Path) -> None:
    cluster.create_topic("moved", replicas=[[0], [0], [0]])
    produce(cluster, "moved", 100, 1000)
    plan, before = str(tmp_path / "plan.json"), str(tmp_path / "before.json")
    shown = ottla("topics", "reassign", "generate", "moved", "-o", plan)
    assert [row[:3] for row in shown.rows] == [["moved", str(number), "0"] for number in range(3)]
    assert sorted(row[3] for row in shown.rows) == ["0", "1", "2"]
    assert ottla("topics", "reassign", "generate", "moved", "--json").json == json.loads(Path(plan).read_text())
    verified = ottla("topics", "reassign", "verify", plan, status=1)
    assert [row[-3:] for row in verified.rows].count(["not", "as", "planned"]) == 2
    executed = ottla("topics", "reassign", "execute", plan, "--save", before, "--throttle", "50000000", "--wait")
    assert executed.lines == [f"moved-{number}: moved" for number in range(3)]
    assert sorted(replicas_of(ottla, "moved")) == [[0], [1], [2]]
    assert configs_of(ottla, "topic", "moved") == {}
    assert configs_of(ottla, "broker", "0") == {}
    assert {entry["state"] for entry in ottla("topics", "reassign", "verify", plan, "--json").json} == {"done"}
    ottla("topics", "reassign", "execute", before, "--wait")
    assert replicas_of(ottla, "moved") == [[0], [0], [0]]


def test_a_move_is_throttled_listed_and_given_up(cluster: Cluster, ottla: CommandLine, tmp_path: Path) -> None:
    cluster.create_topic("slow", replicas=[[0]])
    produce(cluster, "slow", 20, 500_000)
    plan = a_plan(tmp_path / "plan.json", "slow", [1, 2])
    assert ottla("topics", "reassign", "execute", plan, "--throttle", "1000").lines == ["slow-0: is being moved"]
    assert ottla("topics", "reassign", "list").rows == [["slow", "0", "1,2,0", "1,2", "0"]]
    assert configs_of(ottla, "topic", "slow") == {
        "leader.replication.throttled.replicas": "0:0",
        "follower.replication.throttled.replicas": "0:1,0:2",
    }
    assert configs_of(ottla, "broker", "2")["follower.replication.throttled.rate"] == "1000"
    assert "being moved" in ottla("topics", "reassign", "execute", plan, status=1).err
    assert [entry["state"] for entry in ottla("topics", "reassign", "verify", plan, "--json", status=1).json] == ["moving"]
    assert configs_of(ottla, "topic", "slow") != {}
    assert ottla("topics", "reassign", "cancel", plan).lines == ["slow-0: stays where it was"]
    assert ottla("topics", "reassign", "list", "--json").json == []
    eventually(lambda: replicas_of(ottla, "slow") == [[0]], what="the replicas are the old ones")
    assert configs_of(ottla, "topic", "slow") == {}
    assert configs_of(ottla, "broker", "2") == {}
    assert "none of its partitions is being moved" in ottla("topics", "reassign", "cancel", "--all").err


def test_plans_that_cannot_be_are_refused_with_a_line(cluster: Cluster, ottla: CommandLine, tmp_path: Path) -> None:
    cluster.create_topic("known", replicas=[[0]])
    reassign = ("topics", "reassign")
    assert "no such topic" in ottla(*reassign, "generate", "nothing", status=1).err
    assert "there is no broker 9" in ottla(*reassign, "generate", "known", "--to", "0,9", status=1).err
    assert "4 replicas need as many brokers" in ottla(*reassign, "generate", "known", "-r", "4", status=1).err
    assert "there is no broker 7" in ottla(*reassign, "execute", a_plan(tmp_path / "a", "known", [7]), status=1).err
    assert "there is no known-1" in ottla(*reassign, "execute", a_plan(tmp_path / "b", "known", [0], [0]), status=1).err
    assert "not a plan in the format of `generate`" in ottla(*reassign, "execute", "-", input="x", status=1).err
    assert "or --all" in ottla(*reassign, "cancel", status=2).err


def test_the_preferred_leader_is_elected(cluster: Cluster, ottla: CommandLine) -> None:
    cluster.create_topic("led", replicas=[[2, 1]])
    assert ottla("topics", "elect", "led").rows == [["led", "0", "not", "needed"]]
    cluster.broker(2).restart()
    cluster.wait_until_isr_is("led", 0, 1, 2)
    eventually(
        lambda: ottla("topics", "elect", "led").rows in ([["led", "0", "elected"]], [["led", "0", "not", "needed"]]), what="an election"
    )
    assert cluster.leader_of("led", 0) == 2
    assert {entry["result"] for entry in ottla("topics", "elect", "--all", "--json").json} <= {"elected", "not needed"}
    assert "no such topic" in ottla("topics", "elect", "nothing", status=1).err
    assert "give --all" in ottla("topics", "elect", status=2).err
    assert ottla("topics", "elect", "--unclean", "led:0").rows == [["led", "0", "not", "needed"]]
