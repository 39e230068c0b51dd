"""Brokers are restarted one at a time, the controller last, and none while a replica is not in sync."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.client.errors import ClientError
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.supervisor.rolling_restart import Trouble, faults_of, rolling_restart


class Imagined:
    """Three brokers with one partition on all of them. `on_restart` may change anything."""

    def __init__(self) -> None:
        self.states = {0: "ready", 1: "ready", 2: "ready"}
        self.isr = [0, 1, 2]
        self.controller = 0
        self.now = 0.0
        self.restarted: list[int] = []
        self.on_restart: Callable[[int], str] = lambda _: ""
        self.on_sleep: Callable[[], None] = lambda: None
        self.unreachable: set[str] = set()

    def brokers(self) -> list[dict[str, Any]]:
        return [
            {"id": broker_id, "host": "127.0.0.1", "port": 9092 + broker_id, "state": state, "reason": ""}
            for broker_id, state in self.states.items()
        ]

    def restart(self, broker_id: int, seconds: float) -> str:
        assert self.isr == [0, 1, 2], "restarted although a replica is not in sync"
        self.restarted.append(broker_id)
        self.now += 3.0
        return self.on_restart(broker_id)

    def metadata(self, address: str) -> MetadataResponse:
        if address in self.unreachable:
            raise ClientError(f"{address} does not answer")
        partition = MetadataResponsePartition(partition_index=0, leader_id=self.isr[0], replica_nodes=[0, 1, 2], isr_nodes=self.isr)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=broker_id) for broker_id in self.states],
            controller_id=self.controller,
            topics=[MetadataResponseTopic(name="t", partitions=[partition])],
        )

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


def test_the_controller_is_restarted_last() -> None:
    cluster, said = Imagined(), list[str]()
    rolling_restart(cluster, 60, said.append)
    assert cluster.restarted == [1, 2, 0]
    assert said[0] == "broker 1: restarted in 3.0 s, all replicas in sync after 0.0 s"


def test_the_next_broker_waits_for_the_replicas_of_the_last_one() -> None:
    cluster, said = Imagined(), list[str]()

    def leave(broker_id: int) -> str:
        cluster.isr = [each for each in (0, 1, 2) if each != broker_id]
        return ""

    def come_back() -> None:
        if cluster.now % 5 < 0.5:
            cluster.isr = [0, 1, 2]

    cluster.on_restart, cluster.on_sleep = leave, come_back
    rolling_restart(cluster, 60, said.append)
    assert cluster.restarted == [1, 2, 0]
    assert all("in sync after 0.0 s" not in line for line in said)


def test_whoever_watches_sees_the_broker_and_the_replicas_that_it_waits_for() -> None:
    cluster, seen = Imagined(), list[tuple[int, int, str]]()

    def leave(broker_id: int) -> str:
        cluster.isr = [each for each in (0, 1, 2) if each != broker_id]
        return ""

    def come_back() -> None:
        cluster.isr = [0, 1, 2]

    cluster.on_restart, cluster.on_sleep = leave, come_back
    rolling_restart(cluster, 60, lambda _: None, (1, 2), lambda *each: seen.append(each))
    assert seen == [
        (0, 2, "broker 1 restarts"),
        (1, 2, "waiting: t-0 is not in sync on broker 1"),
        (1, 2, "broker 2 restarts"),
        (2, 2, "waiting: t-0 is not in sync on broker 2"),
    ]


def test_a_replica_that_does_not_come_back_ends_the_restart() -> None:
    cluster = Imagined()
    cluster.on_restart = lambda broker_id: cluster.isr.remove(broker_id) or ""  # type: ignore[func-returns-value]  # remove gives None
    with pytest.raises(Trouble) as trouble:
        rolling_restart(cluster, 60, lambda _: None)
    assert cluster.restarted == [1]
    assert str(trouble.value).splitlines() == [
        "not every replica is in sync after 60 s:",
        "t-0 is not in sync on broker 1",
        "not restarted: broker 2, 0. Remove the cause, then repeat",
    ]


def test_nothing_is_restarted_while_a_replica_is_not_in_sync_before() -> None:
    cluster = Imagined()
    cluster.isr = [0, 2]
    with pytest.raises(Trouble, match="not restarted: broker 0, 1, 2"):
        rolling_restart(cluster, 10, lambda _: None)
    assert cluster.restarted == []


def test_a_broker_that_does_not_start_ends_the_restart() -> None:
    cluster = Imagined()
    cluster.on_restart = lambda broker_id: f"broker {broker_id} ended with status 1: disk full"
    with pytest.raises(Trouble, match=r"broker 1 ended with status 1: disk full\nnot restarted: broker 1, 2, 0"):
        rolling_restart(cluster, 60, lambda _: None)
    assert cluster.restarted == [1]


def test_a_broker_that_dies_meanwhile_ends_the_restart() -> None:
    cluster = Imagined()

    def die(broker_id: int) -> str:
        cluster.states[2] = "waiting"
        return ""

    cluster.on_restart = die
    with pytest.raises(Trouble, match="broker 2 is waiting; "):
        rolling_restart(cluster, 60, lambda _: None)
    assert cluster.restarted == [1]


def test_only_the_named_brokers_are_restarted_and_unknown_ones_refused() -> None:
    cluster = Imagined()
    rolling_restart(cluster, 60, lambda _: None, (2, 0))
    assert cluster.restarted == [2, 0]
    with pytest.raises(Trouble, match="there is no broker 7, 9; there are 0 to 2"):
        rolling_restart(cluster, 60, lambda _: None, (0, 7, 9))


def test_a_broker_that_does_not_answer_is_a_fault() -> None:
    cluster = Imagined()
    cluster.unreachable = {"127.0.0.1:9093"}
    with pytest.raises(Trouble, match=r"broker 1: 127\.0\.0\.1:9093 does not answer"):
        rolling_restart(cluster, 5, lambda _: None)


def test_faults_are_named() -> None:
    answer = Imagined().metadata("")
    answer.controller_id = -1
    answer.topics[0].partitions[0].leader_id = -1
    assert faults_of(answer, {0, 1, 2, 3}) == ["broker 3 is not registered", "there is no controller", "t-0 has no leader"]


def test_a_time_that_is_no_number_is_refused() -> None:
    result = CliRunner().invoke(main, ["cluster", "rolling-restart", "--timeout", "nan"])
    assert (result.exit_code, "nan is not a finite number" in result.output) == (2, True)
