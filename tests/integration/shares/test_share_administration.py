"""`ottla groups` shows share groups beside others, moves them to other offsets and deletes those; so does the console's API."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

from ottla.client.cluster import Cluster
from ottla.console import views
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.command_line import CommandLine
from tests.support.share_clients import Librdkafka, begin_group, work_on_nine
from tests.support.share_members import create_topic, produce
from tests.support.wire_client import WireClient, a_wire_client

CONFIG = {"offsets_topic_num_partitions": 1, "share_coordinator_state_topic_num_partitions": 1, "group_initial_rebalance_delay_ms": 0}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


@pytest.fixture
def ottla(broker: BrokerProcess) -> CommandLine:
    return CommandLine(broker.bootstrap)


def test_groups_of_all_types_are_listed_and_described(broker: BrokerProcess, client: WireClient, ottla: CommandLine) -> None:
    begin_group(client, "shared", "all")
    produce(client, "all", 5)
    assert len(ottla("consume", "-G", "classic", "-e", "all").lines) == 5
    member = Librdkafka(broker, "shared", "all")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "modern", "group.protocol": "consumer"})
    consumer.subscribe(["all"])
    try:
        assert len(member.take(5)) == 5

        def is_stable() -> bool:
            consumer.poll(0.1)
            return ["modern", "consumer", "Stable", "Consumer"] in [row[:4] for row in ottla("groups", "list").rows]

        eventually(is_stable, 30)
        listed = {row[0]: row[1:4] for row in ottla("groups", "list").rows}
        assert listed["classic"] == ["consumer", "Empty", "Classic"]
        assert listed["shared"] == ["share", "Stable", "Share"]
        assert [row[0] for row in ottla("groups", "list", "--type", "share").rows] == ["shared"]
        described = {each["group"]: each for each in ottla("groups", "describe", "--json").json}
        assert {name: each["type"] for name, each in described.items()} == {"classic": "Classic", "modern": "Consumer", "shared": "Share"}
        assert {name: each["assignor"] for name, each in described.items()} == {"classic": "", "modern": "uniform", "shared": "simple"}
        assert described["classic"]["epoch"] is None
        assert described["modern"]["epoch"] > 0
    finally:
        member.close()
        consumer.close()


def test_members_of_a_share_group_are_shown_with_their_partitions_and_the_lag(
    broker: BrokerProcess, client: WireClient, ottla: CommandLine
) -> None:
    begin_group(client, "queue", "queue")
    produce(client, "queue", 7)
    members = [Librdkafka(broker, "queue", "queue") for _ in range(2)]
    try:
        taken = [message for member in members for message in member.poll()]
        while len(taken) < 7:
            taken += [message for member in members for message in member.poll()]
        for member in members:
            member.commit()
            member.poll()  # the start follows with the next change

        def shown() -> tuple[int, list[tuple[int, int]]]:
            (found,) = ottla("groups", "describe", "queue", "--json").json
            parts = [(each["lag"], len(each["members"])) for each in found["partitions"]]
            return len(found["members"]), parts

        eventually(lambda: shown() == (2, [(0, 2)]), 30)
        title, _, *rows = ottla("groups", "describe", "queue").lines
        assert "type Share" in title
        assert "assignor simple" in title
        assert " epoch " in title
        assert [row.split()[:2] for row in rows] == [["queue", "0"]] * 2, "a line for each member"
        refused = ottla("groups", "reset-offsets", "queue", "--topic", "queue", "--to-earliest", "--execute", status=1)
        assert (
            refused.err == "ottla: the offsets of group queue can only be reset while it has no members; it is Stable. Stop its consumers\n"
        )
    finally:
        for member in members:
            member.close()


def test_the_offsets_of_a_share_group_are_moved(client: WireClient, ottla: CommandLine) -> None:
    begin_group(client, "moved", "moved")
    produce(client, "moved", 9)
    assert ottla("groups", "offsets", "moved", "--json").json == [{"topic": "moved", "partition": 0, "offset": 0, "lag": 9}]
    before = 0
    for mode, expected in ((("--to-latest",), 9), (("--shift-by", "-3"), 6), (("--to-earliest",), 0), (("--to-offset", "4"), 4)):
        planned = ottla("groups", "reset-offsets", "moved", "--all-topics", *mode)
        assert (planned.rows, planned.err) == (
            [["moved", "0", str(before), str(expected)]],
            "nothing was changed; --execute resets the offsets\n",
        )
        ottla("groups", "reset-offsets", "moved", "--all-topics", *mode, "--execute")
        assert ottla("groups", "offsets", "moved").rows == [["moved", "0", str(expected), str(9 - expected)]]
        before = expected
    unclear = ottla("groups", "reset-offsets", "moved", "--all-topics", "--to-current", status=1)
    assert unclear.err == "ottla: --to-current makes no sense for share group moved: its position is not one offset; use --to-offset\n"
    assert ottla("groups", "offsets", "moved").rows == [["moved", "0", "4", "5"]]


def test_records_in_flight_are_shown_and_released(broker: BrokerProcess, client: WireClient, ottla: CommandLine) -> None:
    begin_group(client, "flight", "flight")
    produce(client, "flight", 9)
    assert ottla("groups", "records", "flight").rows == []
    work_on_nine(broker, "flight", "flight")
    assert ottla("groups", "records", "flight").rows == [
        ["flight", "0", *each] for each in (("0", "0", "available", "1"), ("1", "3", "acknowledged", "1"), ("4", "8", "available", "1"))
    ]
    (partition,) = ottla("groups", "records", "flight", "--json").json
    assert (partition["start"], partition["in_flight"], len(partition["records"])) == (0, 9, 3)
    ottla("groups", "reset-offsets", "flight", "--all-topics", "--shift-by", "0", "--execute")
    assert ottla("groups", "records", "flight").rows == []
    member = Librdkafka(broker, "flight", "flight")
    assert [(message.offset(), message.delivery_count()) for message in member.take(9)] == [(offset, 1) for offset in range(9)]
    member.close()


def test_only_share_groups_have_records_in_flight(client: WireClient, ottla: CommandLine) -> None:
    assert ottla("groups", "records", "nobody", status=1).err == "ottla: group nobody is no share group\n"


def test_members_go_on_where_the_group_was_moved_to(broker: BrokerProcess, client: WireClient, ottla: CommandLine) -> None:
    begin_group(client, "again", "again")
    produce(client, "again", 5)
    member = Librdkafka(broker, "again", "again")
    assert [message.offset() for message in member.take(5)] == list(range(5))
    member.close()
    eventually(lambda: ottla("groups", "list", "--state", "empty", "--type", "share").out.count("again ") == 1, 30)
    ottla("groups", "reset-offsets", "again", "--topic", "again:0", "--to-offset", "3", "--execute")
    member = Librdkafka(broker, "again", "again")
    assert [message.offset() for message in member.take(2)] == [3, 4]
    member.close()


def test_the_offsets_of_a_share_group_are_deleted_by_topic(client: WireClient, ottla: CommandLine) -> None:
    create_topic(client, "dropped", 2)
    begin_group(client, "dropping", "kept")
    ottla("groups", "reset-offsets", "dropping", "--topic", "dropped", "--to-earliest", "--execute")
    one = ottla("groups", "delete-offsets", "dropping", "--topic", "dropped:1", status=1)
    assert one.err == "ottla: the offsets of share group dropping are deleted by topic; dropped-0 cannot be kept, so name all partitions\n"
    assert ottla("groups", "delete-offsets", "dropping", "--topic", "dropped").lines == [
        "dropped-0: offset deleted",
        "dropped-1: offset deleted",
    ]
    assert [row[0] for row in ottla("groups", "offsets", "dropping").rows] == ["kept"]
    assert ottla("groups", "delete", "dropping").out == "dropping: deleted\n"


def test_the_console_shows_share_groups(broker: BrokerProcess, client: WireClient) -> None:
    begin_group(client, "shown", "shown")
    produce(client, "shown", 4)
    member = Librdkafka(broker, "shown", "shown")
    try:
        assert len(member.take(4)) == 4
        with Cluster(broker.bootstrap) as cluster:
            found = views.group(cluster, "shown")
            assert (found["type"], found["assignor"], len(found["members"])) == ("Share", "simple", 1)
            (partition,) = found["partitions"]
            assert partition["members"] == [found["members"][0]["id"]]
            (reader,) = views.topic_groups(cluster, "shown")["groups"]
            assert (reader["group"], reader["members"], reader["lag"]) == ("shown", 1, partition["lag"])
            assert ("shown", "Share") in {(each["group"], each["type"]) for each in views.groups(cluster)["groups"]}
    finally:
        member.close()
