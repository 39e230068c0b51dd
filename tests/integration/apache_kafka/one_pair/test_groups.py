"""The same histories of group requests, played against Apache Kafka and against Ottla, get the same answers.

Who leads after a leader left is Apache Kafka's choice by the hash of the member ids, which are random, so a history ends where the two
brokers chose differently.
"""

import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.apache_kafka import ApacheKafka, run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.group_player import SLOTS, GroupPlayer, Step
from tests.support.java_pair import Pair
from tests.support.wire_client import a_wire_client

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

HISTORIES = 24
STEPS = 40
CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
WAYS = ("join", "join", "again", "again", "again", "sync", "sync", "sync", "heartbeat", "heartbeat", "leave", "commit", "reconnect")


@pytest.fixture(scope="module")
def ports(pair: Pair) -> tuple[int, int]:
    """Apache Kafka's port and Ottla's, both ready to coordinate all groups of the histories."""
    find = FindCoordinatorRequest(coordinator_keys=["x"])
    describe = DescribeGroupsRequest(groups=[f"history-{seed}" for seed in range(HISTORIES)])
    for port in (pair.theirs.port(), pair.ours.port):
        with a_wire_client(port) as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9_999), 5)
            eventually(lambda asked=client: not asked.ask(find, 4).coordinators[0].error_code)
            eventually(lambda asked=client: not any(group.error_code for group in asked.ask(describe, 5).groups))
    return pair.theirs.port(), pair.ours.port


def a_history(seed: int) -> list[Step]:
    random = Random(seed)
    slots = random.sample(list(SLOTS), random.randint(1, len(SLOTS)))
    return [Step(random.choice(slots), random.choice(WAYS), random.randrange(24)) for _ in range(STEPS)]


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_history_gets_the_answers_of_apache_kafka(seed: int, ports: tuple[int, int]) -> None:
    players = [GroupPlayer(port, f"history-{seed}") for port in ports]
    played: list[str] = []
    try:
        for step in a_history(seed):
            theirs, ours = (player.play(step) for player in players)
            theirs = sorted(theirs + players[0].more(slots_of(ours) - slots_of(theirs)))
            ours = sorted(ours + players[1].more(slots_of(theirs) - slots_of(ours)))
            played.append(f"{step}: {theirs}")
            if theirs != ours and without_leaders(theirs) == without_leaders(ours):
                return
            assert ours == theirs, "\n".join(played)
            # Timers move groups on, at a slightly different moment in each broker.
            deadline = time.monotonic() + 15
            while True:
                theirs_described, ours_described = (player.describe() for player in players)
                if ours_described == theirs_described or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
            assert ours_described == theirs_described, "\n".join(played)
    finally:
        for player in players:
            player.close()


def slots_of(answers: list[tuple[str, str]]) -> set[str]:
    """Who was answered."""
    return {slot for slot, _ in answers}


def without_leaders(answers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The answers to JoinGroup without what only depends on who leads."""
    return [(slot, answer.partition(" leader=")[0]) for slot, answer in answers]


def test_the_tools_of_apache_kafka_administer_groups(tmp_path: Path) -> None:
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    with a_broker(tmp_path, num_partitions=2, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=2) as broker:
        to = ("--bootstrap-server", broker.bootstrap)
        run_tool("kafka.tools.ConsoleProducer", *to, "--topic", "t", input="".join(f"{number}\n" for number in range(50)))
        read = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *(*to, "--topic", "t", "--group", "java", "--from-beginning", "--max-messages", "50", "--timeout-ms", "20000"),
        )
        assert sorted(map(int, read.stdout.split())) == list(range(50))
        assert "Empty" in run_tool(command, *to, "--list", "--state").stdout
        described = run_tool(command, *to, "--describe", "--group", "java").stdout.split()
        assert described.count("java") == 2
        run_tool(command, *to, "--reset-offsets", "--group", "java", "--topic", "t", "--to-earliest", "--execute")
        assert "Successful" in run_tool(command, *to, "--delete-offsets", "--group", "java", "--topic", "t:1").stdout
        assert "was successful" in run_tool(command, *to, "--delete", "--group", "java").stdout
        dumped = dump_of_group(broker)
    assert '"group":"java","topic":"t","partition":1}} payload: <DELETE>' in dumped
    assert '{"type":"2","data":{"group":"java"}} payload: <DELETE>' in dumped


def dump_of_group(broker: BrokerProcess) -> str:
    """What Apache Kafka reads in the log that holds the group."""
    logs = ",".join(str(path) for path in broker.data.glob("__consumer_offsets-*/*.log"))
    return run_tool("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", logs).stdout


@pytest.mark.soak
def test_a_broker_of_apache_kafka_on_our_log_serves_the_same_groups_and_offsets(tmp_path: Path) -> None:
    config = {name.replace(".", "_"): value for name, value in CONFIG.items()}
    with a_broker(tmp_path / "ottla", **config) as broker:
        make_ready(broker.port, broker.bootstrap)
        lone = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "lone", "enable.auto.commit": False})
        lone.commit(offsets=[TopicPartition("t", 0, 7, "a note", 0), TopicPartition("t", 1, 1 << 40)], asynchronous=False)
        lone.close()
        leave_a_static_member_behind(broker.bootstrap)
        expected = told(broker.port)
        assert expected is not None
    with ApacheKafka(tmp_path / "kafka", heap="256m", config=CONFIG) as kafka:
        make_ready(kafka.port(), kafka.bootstrap)
        kafka.stop_broker(0)
        theirs = kafka.data_directory() / "__consumer_offsets-0"
        ours = broker.data / "__consumer_offsets-0"
        for path in (path for path in theirs.iterdir() if path.name != "partition.metadata"):
            path.unlink()
        for path in (path for path in ours.iterdir() if path.name != "partition.metadata"):
            shutil.copy(path, theirs)
        kafka.start_broker(0)
        assert eventually(lambda: told(kafka.port()), what="groups and offsets of Apache Kafka") == expected
        assert not [line for line in kafka.log_text().splitlines() if " ERROR " in line and "consumer_offsets" in line]


def make_ready(port: int, bootstrap: str) -> None:
    """There is a topic with three records in each of its partitions, and a coordinator."""
    with a_wire_client(port) as client:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9_999), 5)
        find = FindCoordinatorRequest(coordinator_keys=["x"])
        eventually(lambda: not client.ask(find, 4).coordinators[0].error_code)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(6):
        producer.produce("t", str(number), partition=number % 2)
    assert producer.flush(60) == 0


def leave_a_static_member_behind(bootstrap: str) -> None:
    """It reads all there is, commits, and ends without leaving its group."""
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "static",
            "group.instance.id": "one",
            "client.id": "reader",
            "session.timeout.ms": 300_000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe(["t"])
    read = 0
    while read < 6:
        read += len(member.consume(6, 1.0))
    member.commit(asynchronous=False)
    member.close()


def told(port: int) -> object:
    """What a broker says of both groups; None as long as it does not."""
    names = ["lone", "static"]
    with a_wire_client(port) as client:
        described = client.ask(DescribeGroupsRequest(groups=names), 5).groups
        asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
        fetched = client.ask(OffsetFetchRequest(groups=asked), 8).groups
    if any(group.error_code for group in (*described, *fetched)):
        return None
    members = [
        (group.group_id, group.group_state, group.protocol_type, group.protocol_data, [(*vars_of(each),) for each in group.members])
        for group in described
    ]
    offsets = [
        (group.group_id, topic.name, sorted((*vars_of(each),) for each in topic.partitions)) for group in fetched for topic in group.topics
    ]
    assert len(offsets) == len(names)
    return members, offsets


def vars_of(struct: Any) -> list[Any]:
    """All fields of a struct."""
    return [getattr(struct, name) for name in struct.__slots__]
