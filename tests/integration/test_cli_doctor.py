"""`ottla doctor` against real clusters of either kind, while they are healthy and while they are not."""

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla.cli.doctor.cluster_checks import check_cluster
from ottla.cli.doctor.cluster_facts import gather
from ottla.cli.doctor.examination import examine_broker, examine_directories
from ottla.cli.doctor.host import RealHost
from ottla.client.cluster import Cluster as Client
from ottla.config.broker import BrokerConfig
from tests.support.apache_kafka.brokers import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.cluster import a_cluster
from tests.support.command_line import CommandLine

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SECONDS = 60.0
OF_THE_MACHINE = {"clock-unsynchronised", "disk-nearly-full", "disk-full", "mount-in-memory", "fsync-slow", "open-files-limit"}
"""Findings that depend on where the tests run."""


def ids(line: CommandLine, *arguments: str, status: int) -> set[str]:
    found = line("doctor", "-b", line.bootstrap, *arguments, "--json", status=status).json
    assert found["not_examined"] == []
    return {finding["id"] for finding in found["findings"]}


def test_a_cluster_is_healthy_until_a_broker_stops(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2, min_insync_replicas=1) as cluster:
        line = CommandLine(cluster.bootstrap)
        cluster.create_topic("safe", replicas=[[0, 1], [1, 0]])
        line("produce", "safe", input="a\nb\n")
        line("consume", "-G", "readers", "-e", "-c", "2", "safe")
        assert ids(line, status=0) == set()
        cluster.create_topic("lonely", replicas=[[1]])
        assert ids(line, status=1) == {"topic-single-replica"}
        assert cluster.broker(1).stop() == 0
        cluster.wait_until_isr_is("safe", 0, 0)
        line.bootstrap = cluster.broker(0).bootstrap
        found = ids(line, status=2)
        assert {"broker-dead", "partition-offline"} <= found
        shown = line("doctor", "-b", line.bootstrap, status=2).out
        assert shown.startswith("PROBLEM broker-dead: broker 1 is not alive; it has replicas of ")
        assert "PROBLEM partition-offline: lonely-0: no leader" in shown
        assert "start broker 1" in shown


def test_a_broker_that_says_nothing_is_named_and_the_others_are_examined(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 2, min_insync_replicas=1, zookeeper_session_timeout_ms=60_000) as cluster:
        line = CommandLine(cluster.bootstrap)
        (controller,) = [each["id"] for each in line("brokers", "list", "--json").json["brokers"] if each["controller"]]
        silent = 1 - controller
        cluster.create_topic("here", replicas=[[controller]])
        cluster.create_topic("there", replicas=[[silent]])
        line.bootstrap = cluster.broker(controller).bootstrap
        line("produce", "here", input="a\n")
        cluster.broker(silent).pause()
        try:
            found = line("doctor", "-b", line.bootstrap, "--timeout", "1", "--json", status=2).json
            hanging = line("transactions", "find-hanging", "here", "there", "--timeout", "1", "--json", status=1)
            listed = line("transactions", "list", "--timeout", "1", "--json", status=1)
        finally:
            cluster.broker(silent).resume()
    assert {"broker-unreachable", "topic-single-replica"} <= {each["id"] for each in found["findings"]}
    assert found["not_examined"] == [f"broker {silent}: log directories, groups, transactions and throttles, because it does not answer"]
    for answer in hanging, listed:
        assert (answer.json, f"broker {silent} is registered at" in answer.err) == ([], True)
    assert hanging.err.startswith(f"ottla: there-0: broker {silent} is registered at")


def test_the_directories_and_the_configuration_of_a_running_broker_are_examined(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 1) as cluster:
        cluster.create_topic("t", partitions=3)
        line = CommandLine(cluster.bootstrap)
        line("produce", "t", input="".join(f"{number}\n" for number in range(1000)))
        broker = cluster.broker(0)
        found = examine_broker(BrokerConfig(broker.properties), RealHost(), random.Random())
        assert {each.kind.id for each in found} <= OF_THE_MACHINE, found


def test_a_group_without_commits_and_an_open_transaction_are_found(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 1) as cluster:
        cluster.create_topic("t")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "open", "transaction.timeout.ms": 300_000})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"x")
        producer.flush()
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "forgetful", "enable.auto.commit": False})
        consumer.subscribe(["t"])
        try:
            eventually(lambda: consumer.poll(0.1) is None and consumer.assignment(), SECONDS, "the group is stable")
            with Client(cluster.bootstrap) as client:
                now = {each.kind.id for each in check_cluster(gather(client))}
                later = {each.kind.id for each in check_cluster(gather(client, lambda: time.time() + 3600))}
        finally:
            consumer.close()
            producer.abort_transaction()
        assert now == {"group-without-commits"}
        assert later == {"group-without-commits", "transaction-long"}


@pytest.mark.java
@pytest.mark.soak
class TestApacheKafka:
    """The same checks by the same protocol."""

    pytestmark = needs_apache_kafka

    def test_a_broker_of_apache_kafka_is_examined_with_its_directory(self, tmp_path: Path) -> None:
        with ApacheKafka(tmp_path, 1) as apache:
            line = CommandLine(apache.bootstrap)
            line("topics", "create", "t", "-r", "1")
            line("produce", "t", input="a\n")
            line("consume", "-G", "readers", "-e", "-c", "1", "t")
            assert ids(line, status=0) == set()
            found = examine_directories([str(apache.data_directory())], RealHost(), random.Random())
            assert {each.kind.id for each in found} <= OF_THE_MACHINE, found
