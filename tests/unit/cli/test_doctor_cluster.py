"""Every finding about a cluster is provoked once by its facts, and a healthy cluster has none."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.doctor import cluster_facts
from ottla.cli.doctor.cluster_checks import check_cluster
from ottla.cli.doctor.cluster_facts import BrokerFacts, ClusterFacts, DiskFacts, ask_configs, ask_each, ask_transactions
from ottla.cli.doctor.command import _print
from ottla.cli.doctor.examination import examine_cluster
from ottla.cli.doctor.kinds import KINDS, Severity
from ottla.cli.doctor.zookeeper import ServerFacts
from ottla.cli.main import main
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, ConnectionLost, Refused
from ottla.client.hanging import HangingSearch, OpenTransaction
from ottla.client.transaction_admin import Producer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.schema.fields import Versions
from ottla.protocol.topic_partition import TopicPartition
from tests.support.examined_host import GIB
from tests.unit.cli import test_doctor_host

TABLE = {0: Versions(3, 11), 1: Versions(4, 17)}
OPEN = OpenTransaction(TopicPartition("t", 0), Producer(4000, 0, -1, 5, 1_700_000_000_000, 17))


def partition(number: int, replicas: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(partition_index=number, leader_id=replicas[0], replica_nodes=replicas, isr_nodes=list(replicas))


def healthy() -> ClusterFacts:
    """Three brokers in three racks; two internal topics and one other."""
    replicas = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    topics = ("t", "__consumer_offsets", "__transaction_state")
    return ClusterFacts(
        brokers={number: BrokerFacts(f"127.0.0.1:{9092 + number}", f"r{number}", dict(TABLE)) for number in range(3)},
        controller_id=1,
        topics=[
            MetadataResponseTopic(name=name, partitions=[partition(number, list(each)) for number, each in enumerate(replicas)])
            for name in topics
        ],
        configs={name: {"min.insync.replicas": "2", "cleanup.policy": "delete" if name == "t" else "compact"} for name in topics},
        disks=[
            DiskFacts(number, f"/data/{place}", True, 5 * GIB + place, 100 * GIB, 50 * GIB) for number in range(3) for place in range(2)
        ],
        zookeeper=[ServerFacts("zk-1:2181", average_seconds=0.001)],
    )


def first(facts: ClusterFacts) -> MetadataResponsePartition:
    return facts.topics[0].partitions[0]


def _change_broker(facts: ClusterFacts, **changes: object) -> None:
    facts.brokers[2] = facts.brokers[2]._replace(**changes)  # type: ignore[arg-type]  # the names of the fields are those of the test


def _change_disk(facts: ClusterFacts, **changes: object) -> None:
    facts.disks[0] = facts.disks[0]._replace(**changes)  # type: ignore[arg-type]  # the names of the fields are those of the test


def _one_rack(facts: ClusterFacts) -> None:
    facts.brokers[3] = BrokerFacts("127.0.0.1:9095", "r0", dict(TABLE))
    facts.topics[0].partitions[0] = partition(0, [0, 3])


def _uneven(facts: ClusterFacts) -> None:
    facts.topics[0].partitions += [partition(number, [0, 1]) for number in range(3, 40)]


def _dead(facts: ClusterFacts) -> None:
    """Broker 2 is gone, and the others know it."""
    del facts.brokers[2]
    facts.disks = [each for each in facts.disks if each.broker_id != 2]
    for topic in facts.topics:
        for each in topic.partitions:
            each.isr_nodes.remove(2)
            each.leader_id = each.isr_nodes[0]


PROVOKED: dict[str, Callable[[ClusterFacts], object]] = {
    "broker-dead": _dead,
    "broker-unreachable": lambda facts: _change_broker(facts, versions={}, error="Connection refused"),
    "controller-missing": lambda facts: setattr(facts, "controller_id", -1),
    "versions-mixed": lambda facts: _change_broker(facts, versions={0: Versions(3, 12)}),
    "throttle-left": lambda facts: facts.throttled.update({"1": "leader.replication.throttled.rate=1000"}),
    "partition-offline": lambda facts: setattr(first(facts), "leader_id", -1),
    "partition-below-min-isr": lambda facts: setattr(first(facts), "isr_nodes", [0]),
    "partition-under-replicated": lambda facts: setattr(first(facts), "isr_nodes", [0, 1]),
    "leader-not-preferred": lambda facts: setattr(first(facts), "leader_id", 2),
    "replicas-in-one-rack": _one_rack,
    "replicas-uneven": _uneven,
    "directories-uneven": lambda facts: _change_disk(facts, replica_bytes=90 * GIB),
    "directory-offline": lambda facts: _change_disk(facts, is_online=False),
    "disk-nearly-full": lambda facts: _change_disk(facts, usable_bytes=10 * GIB),
    "disk-full": lambda facts: _change_disk(facts, usable_bytes=1 * GIB),
    "topic-single-replica": lambda facts: facts.topics[0].partitions.__setitem__(0, partition(0, [1])),
    "min-isr-too-high": lambda facts: facts.configs["t"].update({"min.insync.replicas": "3"}),
    "internal-topic-policy": lambda facts: facts.configs["__consumer_offsets"].update({"cleanup.policy": "delete"}),
    "internal-topic-replicas": lambda facts: facts.topics[2].partitions.__setitem__(0, partition(0, [1])),
    "internal-topic-partitions": lambda facts: facts.configured_partitions.update({"offsets.topic.num.partitions": 0}),
    "group-without-commits": lambda facts: facts.groups_without_commits.append("readers"),
    "transaction-hanging": lambda facts: facts.hanging.append(OPEN),
    "zookeeper-server-down": lambda facts: facts.zookeeper.append(ServerFacts("zk-2:2181", "Connection refused")),
    "zookeeper-unreachable": lambda facts: facts.zookeeper.append(ServerFacts("zk-2:2181", is_serving=False)),
    "zookeeper-slow": lambda facts: facts.zookeeper.append(ServerFacts("zk-2:2181", average_seconds=0.5)),
    "transaction-long": lambda facts: facts.long.append(OPEN),
    "remote-copies-unowned": lambda facts: facts.remote.copied_topics.update({"gone": 3}),
    "remote-storage-lost": lambda facts: facts.remote.copied_topics.update({"t": 3}),
    "remote-records-missing": lambda facts: facts.remote.gaps.update({"t-0": "5 to 7"}),
    "remote-store-degraded": lambda facts: facts.remote.unread.update({"t-0": "KAFKA_STORAGE_ERROR"}),
    "remote-copies-behind": lambda facts: facts.remote.behind.update({"t-0": 500}),
}
"""By finding the change of a healthy cluster that provokes it."""

ELSEWHERE = {"configuration-invalid", "cluster-unreachable", "remote-store-unusable"}
"""Findings that tests of their own provoke."""


def test_a_healthy_cluster_has_no_finding() -> None:
    assert list(check_cluster(healthy())) == []


@pytest.mark.parametrize("kind", PROVOKED)
def test_each_fault_of_a_cluster_is_found(kind: str) -> None:
    facts = healthy()
    PROVOKED[kind](facts)
    found = list(check_cluster(facts))
    assert kind in {each.kind.id for each in found}, found
    assert all(each.what and each.command for each in found)


def test_a_dead_broker_is_named_first_and_once() -> None:
    facts = healthy()
    _dead(facts)
    (dead,) = check_cluster(facts)
    assert dead.what == "broker 2 is not alive; it has replicas of 9 partitions"


@pytest.mark.parametrize(
    ("kind", "what", "generate"),
    [
        ("internal-topic-replicas", "__transaction_state has 1 replica, and 3 are possible", "generate __transaction_state -r 3"),
        ("topic-single-replica", "t: one replica among 3 brokers", "generate t -r 3"),
        ("replicas-in-one-rack", "t-0: all replicas in one rack", "generate t"),
        ("replicas-uneven", "broker 0 has 46 replicas, broker 2 has 9", "generate '*'"),
    ],
)
def test_the_command_that_moves_replicas_can_be_copied(kind: str, what: str, generate: str) -> None:
    facts = healthy()
    PROVOKED[kind](facts)
    (found,) = [each for each in check_cluster(facts) if each.kind.id == kind]
    assert found.what == what
    assert found.command == f"ottla topics reassign {generate} -o plan.json && ottla topics reassign execute plan.json --wait"


def test_every_kind_of_finding_is_provoked_by_a_test() -> None:
    assert {*PROVOKED, *test_doctor_host.PROVOKED, *ELSEWHERE} == KINDS.keys()


def test_the_page_lists_every_kind_with_its_severity_and_reason() -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = page.partition("\n### Findings\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", section, flags=re.MULTILINE))
    assert rows == {kind.id: f"{kind.severity.name.lower()} | {kind.why}" for kind in KINDS.values()}


def described(_: Cluster, broker_id: int, request: DescribeConfigsRequest, *__: object) -> DescribeConfigsResponse:
    """Of the internal topic of offsets a refusal, of another topic the broker that was asked as its value."""
    config = DescribeConfigsResourceResult(name="min.insync.replicas", value=str(broker_id))
    code = {"__consumer_offsets": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    names = [each.resource_name for each in request.resources]
    return DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_name=name, error_code=code.get(name, ErrorCode.NONE), configs=[config]) for name in names]
    )


def test_every_broker_describes_a_share_of_the_topics_and_those_not_described_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "ask_broker", described)
    facts = healthy()
    facts.configs = {}
    with Cluster("127.0.0.1:1") as cluster:
        ask_configs(facts, cluster)
    assert facts.configs == {"t": {"min.insync.replicas": "0"}, "__transaction_state": {"min.insync.replicas": "2"}}
    assert facts.not_examined == ["configurations of __consumer_offsets: the cluster refuses to describe them"]


def test_the_topics_of_a_broker_that_is_lost_are_described_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(own: Cluster, broker_id: int, request: DescribeConfigsRequest, *_: object) -> DescribeConfigsResponse:
        if broker_id in lost:
            raise ConnectionLost("no answer")
        return described(own, broker_id, request)

    lost = {0}
    monkeypatch.setattr(Cluster, "ask_broker", answer)
    facts = healthy()
    facts.configs = {}
    with Cluster("127.0.0.1:1") as cluster:
        ask_configs(facts, cluster)
        assert facts.configs == {"t": {"min.insync.replicas": "1"}, "__transaction_state": {"min.insync.replicas": "2"}}
        lost |= {1, 2}
        with pytest.raises(ClientError, match="no broker answers"):
            ask_configs(facts, cluster)


def test_a_broker_that_is_lost_or_refuses_keeps_no_other_from_being_examined() -> None:
    facts = healthy()
    asked: list[int] = []

    def ask(_: Cluster, broker_id: int) -> int:
        asked.append(broker_id)
        if broker_id == 0:
            raise ConnectionLost("broker 0: the broker at 127.0.0.1:9092 did not answer in time")
        if broker_id == 1:
            raise Refused("broker 1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return broker_id

    with Cluster("127.0.0.1:1") as cluster:
        assert ask_each(facts, cluster, "log directories", ask) == {2: 2}
        assert ask_each(facts, cluster, "throttles", ask) == {2: 2}
    assert sorted(asked) == [0, 1, 1, 2, 2]
    refused = "of broker 1: Cluster authorization failed. (CLUSTER_AUTHORIZATION_FAILED)"
    assert facts.not_examined == [f"log directories {refused}", f"throttles {refused}"]
    (lost,) = check_cluster(facts)
    assert lost.kind.id == "broker-unreachable"
    assert lost.what == "broker 0 is registered at 127.0.0.1:9092: the broker at 127.0.0.1:9092 did not answer in time"


def test_the_transactions_of_the_leaders_that_answer_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = healthy()
    facts.topics = facts.topics[:1]
    facts.topics[0].partitions.append(partition(3, [0, 1]))
    _change_broker(facts, versions={})  # it leads partition 2
    ends = {0: 2, 3: 0}
    lost = ConnectionLost("broker 1: the broker at 127.0.0.1:9093 did not answer in time")
    asked: list[TopicPartition] = []

    def offsets(_: Cluster, wanted: dict[TopicPartition, int], *, isolation: int = 0) -> object:
        asked.extend(wanted)
        found = {name: ends[name.partition] - isolation for name in wanted if name.partition in ends}
        return found, {name: lost for name in wanted if name not in found}

    producer, other = OPEN.producer, OPEN.producer._replace(producer_id=4001)
    unknown = [OPEN._replace(producer=other)]
    monkeypatch.setattr(cluster_facts, "reachable_offsets", offsets)
    monkeypatch.setattr(cluster_facts, "reachable_producers", lambda _, held: ({each: [producer, other] for each in held}, {}))
    monkeypatch.setattr(cluster_facts, "search", lambda _, late: HangingSearch(late[:1], unknown, {}, [lost]))
    with Cluster("127.0.0.1:1") as cluster:
        ask_transactions(facts, cluster, producer.last_timestamp / 1000 + 3600)
    assert [each.partition for each in asked] == [0, 1, 3, 0]  # no transaction is open where there are no records
    assert ([each.producer for each in facts.hanging], [each.producer for each in facts.long]) == ([producer], [other])
    assert facts.not_examined == [
        f"transactions: t-1: {lost}",
        f"transactions: {lost}",
        "transactions: whether those on t-0 hang",
    ]


@pytest.mark.parametrize(("days", "kinds"), [(31, []), (29, ["certificate-expires"]), (-1, ["certificate-expired"])])
def test_the_certificate_that_a_broker_shows_is_judged(days: float, kinds: list[str]) -> None:
    facts = healthy()
    facts.examined_at = 1_700_000_000.0
    _change_broker(facts, certificate_ends_at=facts.examined_at + days * 86_400)
    found = list(check_cluster(facts))
    assert [each.kind.id for each in found] == kinds
    assert all(each.what.startswith("the certificate of broker 2 at 127.0.0.1:9094 ends at 2023-") for each in found)


def test_the_name_of_a_group_is_one_word_of_the_command_and_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    facts = healthy()
    facts.groups_without_commits = ["readers", "$(reboot); 'x'\x1b[2J\u202e\n"]
    plain, hostile = check_cluster(facts)
    assert plain.command == "ottla groups describe readers"
    assert shlex.split(hostile.command) == ["ottla", "groups", "describe", facts.groups_without_commits[1]]
    _print([hostile], [f"groups: {facts.groups_without_commits[1]}"])
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert shown.count("\\u001b[2J\\u202e\\u000a") == 3
    assert shown.count("\n") == 5


@pytest.mark.parametrize("kind", ["topic-single-replica", "min-isr-too-high", "replicas-in-one-rack", "transaction-hanging"])
def test_the_name_of_a_topic_is_one_word_of_the_command(kind: str) -> None:
    facts, name = healthy(), "$(reboot) 'x'"
    facts.topics[0].name = name
    facts.configs[name] = facts.configs["t"]
    PROVOKED[kind](facts)
    facts.hanging = [each._replace(partition=TopicPartition(name, 0)) for each in facts.hanging]
    (command,) = [each.command for each in check_cluster(facts) if each.kind.id == kind]
    assert {name, f"{name}:0"} & set(shlex.split(command))


@pytest.mark.parametrize("kind", ["topic-single-replica", "min-isr-too-high", "replicas-in-one-rack", "transaction-hanging"])
def test_a_name_that_looks_like_an_option_is_none_in_the_command(kind: str) -> None:
    facts, name = healthy(), "--force"
    facts.topics[0].name = name
    facts.configs[name] = facts.configs["t"]
    facts.groups_without_commits = [name]
    PROVOKED[kind](facts)
    facts.hanging = [each._replace(partition=TopicPartition(name, 0)) for each in facts.hanging]
    commands = [each.command for each in check_cluster(facts) if each.kind.id in {kind, "group-without-commits"}]
    assert len(commands) == 2
    for command in commands:
        _, before, after = command.partition(" -- ")
        assert before
        assert after.removesuffix(" && ottla topics reassign execute plan.json --wait") in {name, f"{name}:0"}


@pytest.mark.parametrize(
    ("throttled", "command"),
    [
        (["2"], "ottla configs alter broker 2 {keys}"),
        (["default"], "ottla configs alter broker default {keys}"),
        (["0", "2", "default"], "for each in 0 2 default; do ottla configs alter broker $each {keys}; done"),
    ],
)
def test_the_command_removes_every_throttle_that_is_left(throttled: list[str], command: str) -> None:
    facts = healthy()
    facts.throttled = dict.fromkeys(throttled, "leader.replication.throttled.rate=1000")
    (found,) = check_cluster(facts)
    assert found.command == command.format(keys="--delete leader.replication.throttled.rate --delete follower.replication.throttled.rate")


def test_a_throttle_of_a_reassignment_that_runs_is_in_order() -> None:
    facts = healthy()
    facts.throttled["1"] = "leader.replication.throttled.rate=1000"
    facts.is_reassigning = True
    assert list(check_cluster(facts)) == []


def test_an_empty_cluster_of_one_broker_is_in_order() -> None:
    facts = ClusterFacts(brokers={0: BrokerFacts("127.0.0.1:9092", None, dict(TABLE))}, controller_id=0)
    assert list(check_cluster(facts)) == []


def test_a_part_that_could_not_be_examined_is_no_health(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    notes = ["log directories of broker 1: Cluster authorization failed. (CLUSTER_AUTHORIZATION_FAILED)"]
    monkeypatch.setattr("ottla.cli.doctor.examination.examine_cluster", lambda *_: ([], notes))
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"], standalone_mode=False)
    assert ended.value.code == Severity.WARNING.value
    assert json.loads(capsys.readouterr().out) == {"findings": [], "not_examined": notes}


def test_a_cluster_that_does_not_answer_is_one_problem(capsys: pytest.CaptureFixture[str]) -> None:
    found, notes = examine_cluster("127.0.0.1:1", 0.3)
    assert [each.kind.id for each in found] == ["cluster-unreachable"]
    assert notes == []
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "-b", "127.0.0.1:1", "--timeout", "0.3", "--json"], standalone_mode=False)
    assert ended.value.code == Severity.PROBLEM.value
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["id"] == "cluster-unreachable"
    assert finding.keys() == {"id", "severity", "what", "why", "command"}
