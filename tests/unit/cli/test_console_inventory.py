"""The console takes the inventory of a cluster: each broker is asked once, and what none tells is unknown and not zero."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import pytest

from ottla.cli.doctor.host_checks import FULL, NEARLY_FULL
from ottla.client.cluster import NO_LEADER, Cluster
from ottla.client.connection import Address, Connection
from ottla.client.errors import ClientError, ConnectionLost, Unreachable, UnsupportedByBroker
from ottla.client.versions import ApiTable
from ottla.console.application import STATIC
from ottla.console.inventory import KEPT_FACTOR, KEPT_SECONDS, PROTOCOL_VERSION, Inventory, Kept, take_inventory
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.schema.fields import Versions
from ottla.protocol.schema.message import Message

TABLE: Final = {0: Versions(3, 11), 1: Versions(4, 17)}


def a_directory(path: str, sizes: Mapping[tuple[str, int], int], *, future: Iterable[tuple[str, int]] = ()) -> DescribeLogDirsResult:
    """A log directory with replicas of these sizes; some of them are future ones."""
    topics = [
        DescribeLogDirsTopic(
            name=name,
            partitions=[
                DescribeLogDirsPartition(partition_index=number, partition_size=size, is_future_key=(name, number) in future)
                for (of, number), size in sizes.items()
                if of == name
            ],
        )
        for name in dict.fromkeys(name for name, _ in sizes)
    ]
    return DescribeLogDirsResult(log_dir=path, topics=topics, total_bytes=1000, usable_bytes=400)


class Broker:
    """A connection to a broker with these log directories. It is `late` if it gives no answer."""

    def __init__(self, *directories: DescribeLogDirsResult, **facts: Any) -> None:
        self.directories = directories
        self.refusal: ErrorCode = facts.get("refusal", ErrorCode.NONE)
        self.version: str | None = facts.get("version", "3.9-IV0")
        self.versions: ApiTable = facts.get("versions", TABLE)
        self.is_late: bool = facts.get("is_late", False)
        self.is_old: bool = facts.get("is_old", False)
        self.address = Address("127.0.0.1", 1)
        self.timeout_seconds = 0.0
        self.log: list[str] = []
        self._answers: deque[Message] = deque()

    def send(self, request: Message) -> None:
        if isinstance(request, DescribeLogDirsRequest):
            if self.is_old:
                raise UnsupportedByBroker("the broker does not support DescribeLogDirs")
            assert request.topics is None
            self.log.append("ask")
            results = [] if self.refusal else list(self.directories)
            self._answers.append(DescribeLogDirsResponse(error_code=self.refusal, results=results))
            return
        assert isinstance(request, DescribeConfigsRequest)
        assert request.resources[0].configuration_keys == [PROTOCOL_VERSION]
        told = [] if self.version is None else [DescribeConfigsResourceResult(name=PROTOCOL_VERSION, value=self.version)]
        result = DescribeConfigsResult(error_code=0 if told else ErrorCode.CLUSTER_AUTHORIZATION_FAILED, configs=told)
        self._answers.append(DescribeConfigsResponse(results=[result]))

    def receive(self, timeout_seconds: float) -> Message | None:
        self.log.append("answer")
        assert timeout_seconds >= 0
        return None if self.is_late else self._answers.popleft()

    def close(self) -> None:
        """See Connection."""


class ClusterOfTest(Cluster):
    """A cluster whose partitions have these replicas; the first one leads. A broker without a connection is dead."""

    def __init__(self, topics: Mapping[str, list[list[int]]], brokers: Mapping[int, Broker | None]) -> None:
        super().__init__("127.0.0.1:1", timeout_seconds=1.0)
        self._of = topics
        self._connected = brokers
        self.log: list[str] = []
        for each in brokers.values():
            if each is not None:
                each.log = self.log

    def refresh(self, topics: Iterable[str] | None, *, may_create: bool = False) -> MetadataResponse:
        """See Cluster."""
        assert topics is None
        self._brokers = {number: Address("127.0.0.1", number) for number in self._connected}
        listed = [
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=number, leader_id=replicas[0], replica_nodes=[abs(each) for each in replicas], isr_nodes=replicas
                    )
                    for number, replicas in enumerate(partitions)
                ],
            )
            for name, partitions in self._of.items()
        ]
        brokers = [MetadataResponseBroker(node_id=number, host="127.0.0.1", port=number) for number in self._connected]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=listed)

    def broker(self, broker_id: int) -> Connection:
        """See Cluster."""
        found = self._connected[broker_id]
        if found is None:
            raise ConnectionLost(f"no broker can be reached\nat 127.0.0.1:{broker_id}")
        return cast("Connection", found)


def sizes_of(found: Inventory) -> dict[str, tuple[int | None, int | None]]:
    return {each["name"]: (each["bytes"], each["replica_bytes"]) for each in found.sizes["topics"]}


def test_the_size_of_a_topic_is_that_of_its_leaders_and_beside_it_that_of_all_replicas() -> None:
    first = Broker(a_directory("/a", {("t", 0): 5, ("t", 1): 30, ("one", 0): 7}), a_directory("/b", {("t", 0): 4}, future=[("t", 0)]))
    second = Broker(a_directory("/a", {("t", 0): 6, ("t", 1): 40}))
    cluster = ClusterOfTest({"t": [[1, 2], [2, 1]], "one": [[1]], "empty": []}, {1: first, 2: second})
    found = take_inventory(cluster)
    assert sizes_of(found) == {"empty": (0, 0), "one": (7, 7), "t": (45, 81)}
    assert list(sizes_of(found)) == ["empty", "one", "t"]
    assert found.sizes["errors"] == []
    assert found.brokers["brokers"][0]["log_dirs"] == [
        {"path": "/a", "error": None, "total_bytes": 1000, "usable_bytes": 400, "replicas": 3, "replica_bytes": 42},
        {"path": "/b", "error": None, "total_bytes": 1000, "usable_bytes": 400, "replicas": 1, "replica_bytes": 4},
    ]
    assert sorted(cluster.log) == [*["answer"] * 4, "ask", "ask"]  # each broker once


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (None, "no broker can be reached; at 127.0.0.1:2"),
        (Broker(is_late=True), "the broker at 127.0.0.1:1 did not answer in time"),
        (Broker(is_old=True), "the broker does not support DescribeLogDirs"),
        (Broker(refusal=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "CLUSTER_AUTHORIZATION_FAILED"),
        (Broker(), "the right to describe the cluster may be missing"),
        (Broker(DescribeLogDirsResult(log_dir="/lost", error_code=ErrorCode.KAFKA_STORAGE_ERROR)), "/lost: KAFKA_STORAGE_ERROR"),
    ],
    ids=["dead", "late", "old", "refused", "refused before version 3", "a directory is offline"],
)
def test_what_a_broker_does_not_tell_is_unknown_and_not_zero(other: Broker | None, error: str) -> None:
    sizes = {("led", 0): 5, ("mixed", 0): 5, ("away", 0): 5, ("leaderless", 0): 5}
    topics = {"led": [[1]], "mixed": [[1, 2]], "away": [[2, 1]], "leaderless": [[NO_LEADER]]}  # whose replica is on broker 1
    found = take_inventory(ClusterOfTest(topics, {1: Broker(a_directory("/a", sizes)), 2: other}))
    assert sizes_of(found) == {"led": (5, 5), "mixed": (5, None), "away": (None, None), "leaderless": (None, 5)}
    ((broker, reason),) = [each.values() for each in found.sizes["errors"]]
    assert (broker, error in reason) == (2, True)
    first, second = found.brokers["brokers"]
    assert first["error"] is None
    assert (second["error"] or "/lost: KAFKA_STORAGE_ERROR") == reason


def test_a_broker_that_is_not_alive_is_named() -> None:
    found = take_inventory(ClusterOfTest({"t": [[1, 7]]}, {1: Broker(a_directory("/a", {("t", 0): 5}))}))
    assert found.brokers["missing"] == [7]
    assert sizes_of(found) == {"t": (5, None)}
    assert found.sizes["errors"] == [{"broker": 7, "error": "the broker is not alive"}]


def test_versions_are_those_of_the_protocol_and_other_requests_are_marked() -> None:
    older = {**TABLE, 1: Versions(4, 16)}
    brokers = {
        1: Broker(a_directory("/a", {})),
        2: Broker(a_directory("/a", {}), version="3.8-IV0", versions=older),
        3: Broker(a_directory("/a", {}), version=None),
        4: Broker(refusal=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        5: None,
    }
    found = take_inventory(ClusterOfTest({}, brokers)).brokers
    assert [each["protocol_version"] for each in found["brokers"]] == ["3.9-IV0", "3.8-IV0", None, "3.9-IV0", None]
    assert found["other_requests"] == [2]


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    with Cluster("127.0.0.1:1") as cluster, pytest.raises(Unreachable):
        take_inventory(cluster)


def test_late_brokers_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    all_are_asked = threading.Barrier(100, timeout=30)

    def broker_briefly(_: int, __: float) -> Connection:
        all_are_asked.wait()
        raise ConnectionLost("no answer")

    cluster = ClusterOfTest({}, dict.fromkeys(range(100)))
    monkeypatch.setattr(cluster, "broker_briefly", broker_briefly)
    found = take_inventory(cluster)
    assert [each["error"] for each in found.brokers["brokers"]] == ["no answer"] * 100


class Taking:
    """Takes inventories that take so many seconds of its clock. An inventory is its number."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds = 1.0
        self.count = 0
        self.error: ClientError | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.kept = Kept(self.take, lambda: self.now)

    async def take(self) -> Inventory:
        self.count += 1
        await self.may_end.wait()
        self.now += self.seconds
        if self.error is not None:
            raise self.error
        return Inventory({"count": self.count}, {})

    async def get(self) -> int:
        return cast("int", (await self.kept.get()).brokers["count"])


def test_requests_share_an_inventory_which_is_kept_for_a_while() -> None:
    async def scenario() -> None:
        taking = Taking()
        assert await asyncio.gather(*(taking.get() for _ in range(50))) == [1] * 50
        taking.now += KEPT_SECONDS - 0.1
        assert await taking.get() == 1
        taking.now += 0.2
        taking.seconds = 60.0
        assert await taking.get() == 2
        taking.now += KEPT_FACTOR * 60.0 - 0.1  # what costs more is asked for less often
        assert await taking.get() == 2
        taking.now += 0.2
        assert await taking.get() == 3

    asyncio.run(scenario())


def test_an_error_is_for_those_that_wait_and_a_client_that_leaves_ends_nothing() -> None:
    async def scenario() -> None:
        taking = Taking()
        taking.error = Unreachable("no broker can be reached")
        failed = await asyncio.gather(*(taking.get() for _ in range(3)), return_exceptions=True)
        assert failed == [taking.error] * 3
        taking.error = None
        taking.may_end.clear()
        leaving, staying = (asyncio.ensure_future(taking.get()) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        taking.may_end.set()
        assert await staying == 2
        assert leaving.cancelled()

    asyncio.run(scenario())


def test_an_error_for_which_nobody_waits_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        taking = Taking()
        taking.error = Unreachable("no broker can be reached")
        taking.may_end.clear()
        leaving = asyncio.ensure_future(taking.get())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        taking.may_end.set()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(scenario())
    assert caplog.records == []


@pytest.mark.slow
def test_the_sizes_of_100_000_partitions_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"topic-{number:05}" for number in range(10_000)]
    directory = a_directory("/a", {})
    parts = [DescribeLogDirsPartition(partition_index=number, partition_size=7) for number in range(10)]
    directory.topics = [DescribeLogDirsTopic(name=name, partitions=parts) for name in names]
    cluster = ClusterOfTest(dict.fromkeys(names, [[1, 2, 3]] * 10), {number: Broker(directory) for number in (1, 2, 3)})
    metadata = cluster.refresh(None)
    monkeypatch.setattr(cluster, "refresh", lambda _: metadata)  # its objects are made once
    began = time.process_time()
    found = take_inventory(cluster)
    assert time.process_time() - began < 3.0
    assert set(sizes_of(found).values()) == {(70, 210)}


def test_the_bar_of_a_disk_changes_its_colour_where_the_doctor_has_a_finding() -> None:
    page = (STATIC / "cluster.js").read_text(encoding="utf-8")
    assert f'low="{1 - NEARLY_FULL:g}" high="{1 - FULL:g}" optimum="0"' in page
