"""Groups whose topics grow, groups that subscribe to a pattern, and groups of clients of different makers."""

from collections.abc import Iterator

import pytest

from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.java import start_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.clients import ConfluentClient
from tests.support.rebalance_history import History, are_shared, check_offsets_topic
from tests.support.rebalance_kinds import CONFIG, PARTITIONS, RANGE, Kind, all_of, every_client, fill
from tests.support.rebalance_members import CLIENTS, Member

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as running:
        yield running


def two_members(kind: Kind, broker: BrokerProcess, group: str, topics: str) -> list[Member]:
    return [kind.member(broker, group, topics) for _ in range(2)]


@every_client
def test_members_share_the_partitions_that_a_topic_grows_by(kind: Kind, broker: BrokerProcess) -> None:
    topic = group = f"grows-{kind}"
    ConfluentClient(broker.bootstrap).create_topic(topic, 2)
    values = fill(broker, topic, partitions=2)
    with History() as history:
        members = two_members(kind, broker, group, topic)
        history.poll_until(lambda: are_shared(all_of(topic, 2), *members), *members)
        ConfluentClient(broker.bootstrap).grow(topic, 5)
        values |= fill(broker, topic, len(values), partitions=5)
        history.poll_until(lambda: are_shared(all_of(topic, 5), *members), *members)
        history.poll_until(lambda: history.values() == values, *members)
    history.check(values)
    check_offsets_topic(broker.data, group)


@every_client
def test_a_pattern_takes_in_topics_that_come_later(kind: Kind, broker: BrokerProcess) -> None:
    group = f"pattern-{kind}"
    one, two, other = f"{group}-one", f"{group}-two", f"other-{group}"
    values = fill(broker, one)
    with History() as history:
        members = two_members(kind, broker, group, f"^{group}-.*")
        history.poll_until(lambda: are_shared(all_of(one), *members), *members)
        values |= fill(broker, two, len(values))
        fill(broker, other)
        history.poll_until(lambda: are_shared(all_of(one) | all_of(two), *members), *members)
        history.poll_until(lambda: history.values() == values, *members)
    history.check(values)
    check_offsets_topic(broker.data, group)


def test_clients_of_different_makers_share_a_group(broker: BrokerProcess) -> None:
    topic = group = "makers"
    values = fill(broker, topic)
    with History() as history:
        members = [make(broker.bootstrap, group, topic, **strategy) for make, strategy in zip(CLIENTS.values(), all_range(), strict=True)]
        history.poll_until(lambda: are_shared(all_of(topic), *members), *members)
        values |= fill(broker, topic, len(values))
        history.poll_until(lambda: history.values() == values, *members)
    history.check(values)
    check_offsets_topic(broker.data, group)


def all_range() -> list[dict[str, object]]:
    """What makes each client use the range strategy, by which they can be in one group."""
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

    strategies: list[object] = ["range", [KafkaPythonRange], [RangePartitionAssignor]]
    return [{"partition_assignment_strategy": strategy} for strategy in strategies]


@pytest.mark.java
@needs_apache_kafka[1]
def test_the_java_consumer_shares_a_group_with_librdkafka_and_its_partitions_are_taken_over(broker: BrokerProcess) -> None:
    topic = group = "java"
    values = fill(broker, topic)
    properties = {"auto.offset.reset": "earliest", "session.timeout.ms": "6000", "heartbeat.interval.ms": "200", "max.poll.records": "50"}
    arguments = [argument for name, value in properties.items() for argument in ("--consumer-property", f"{name}={value}")]
    to = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group)
    with History() as history:
        member = RANGE.member(broker, group, topic)
        history.poll_until(lambda: history.values() == values, member)
        tool = start_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *to, *arguments)
        try:
            history.poll_until(lambda: len(member.assignment()) == PARTITIONS // 2, member)
            values |= fill(broker, topic, len(values))
            kept = {number for number in values if (topic, number % PARTITIONS) in member.assignment()}
            history.poll_until(lambda: kept <= history.values(), member)
            theirs = values - history.values()
            assert tool.stdout is not None
            read = {int(tool.stdout.readline()) for _ in theirs}
            tool.terminate()
            history.poll_until(lambda: member.assignment() == all_of(topic), member)
        finally:
            tool.kill()
            tool.communicate()
            process_guard().release(tool.pid)
        values |= fill(broker, topic, len(values))
        history.poll_until(lambda: history.values() | theirs == values, member)
    assert read == theirs
    assert len(theirs) == len(kept) // 2
    history.check(values - theirs)
    check_offsets_topic(broker.data, group)
