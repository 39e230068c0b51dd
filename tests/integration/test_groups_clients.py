"""Consumer groups of real clients: they share the partitions, go on where they left off, and outlive the broker and each other."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.group_members import AiokafkaMember, Client, ConfluentMember, KafkaPythonMember, Member

SECONDS = 90.0
PARTITIONS = 4
RECORDS = 200


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """For tests that only need groups and topics of their own."""
    with a_broker(tmp_path_factory.mktemp("broker"), **CONFIG) as broker:
        yield broker


CONFIG: dict[str, object] = {
    "num_partitions": PARTITIONS,
    "group_initial_rebalance_delay_ms": 100,
    "offsets_topic_num_partitions": 3,
    "group_min_session_timeout_ms": 1000,
}


def fill(broker: BrokerProcess, topic: str, first: int = 0) -> None:
    """`RECORDS` numbered records, spread over all partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


clients = pytest.mark.parametrize("client", [ConfluentMember, KafkaPythonMember, AiokafkaMember])


def poll_until(members: list[Member], condition: Callable[[list[int]], bool]) -> list[int]:
    """What the members read until it is so."""
    found: list[int] = []
    deadline = time.monotonic() + SECONDS
    while not condition(found):
        assert time.monotonic() < deadline, f"{len(found)} records; assigned: {[member.assignment() for member in members]}"
        for member in members:
            found += member.poll()
    return found


def are_shared(members: list[Member]) -> bool:
    """Whether every partition has one member, and every member some."""
    assigned = [member.assignment() for member in members]
    return all(assigned) and sorted(each for part in assigned for each in part) == list(range(PARTITIONS))


@clients
def test_members_share_the_partitions_and_the_last_gets_them_all(client: Client, shared_broker: BrokerProcess) -> None:
    topic = f"shared-{client.__name__}"
    fill(shared_broker, topic)
    first = client(shared_broker, topic, topic)
    found = poll_until([first], lambda found: len(found) == RECORDS)
    assert sorted(found) == list(range(RECORDS))
    first.commit()
    second = client(shared_broker, topic, topic)
    poll_until([first, second], lambda _: are_shared([first, second]))
    fill(shared_broker, topic, RECORDS)
    found = poll_until([first, second], lambda found: len(set(found)) == RECORDS)
    assert sorted(set(found)) == list(range(RECORDS, 2 * RECORDS))
    second.commit()
    second.close()
    poll_until([first], lambda _: first.assignment() == set(range(PARTITIONS)))
    first.close()


@clients
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_group_goes_on_where_it_left_off_after_the_broker_was(client: Client, how: str, tmp_path: Path) -> None:
    with a_broker(tmp_path, **CONFIG) as broker:
        fill(broker, "t")
        member = client(broker, "t", "g")
        poll_until([member], lambda found: len(found) == RECORDS)
        member.commit()
        member.close()
        if how == "stopped":
            broker.stop()
        else:
            broker.kill()
        broker.start()
        fill(broker, "t", RECORDS)
        member = client(broker, "t", "g")
        found = poll_until([member], lambda found: len(found) >= RECORDS)
        assert sorted(found) == list(range(RECORDS, 2 * RECORDS))
        member.close()


def test_a_member_stays_a_member_while_the_broker_is_restarted(tmp_path: Path) -> None:
    with a_broker(tmp_path, **CONFIG) as broker:
        fill(broker, "t")
        member = ConfluentMember(broker, "t", "g", session_timeout_ms=20_000, reconnect_backoff_max_ms=200)
        poll_until([member], lambda found: len(found) == RECORDS)
        member.commit()
        broker.kill()
        broker.start()
        fill(broker, "t", RECORDS)
        found = poll_until([member], lambda found: len(found) >= RECORDS)
        assert sorted(found) == list(range(RECORDS, 2 * RECORDS))
        member.commit()
        assert member.rebalances == 1, "the coordinator knew it from the log"
        member.close()


def test_a_static_member_that_comes_back_disturbs_nobody(shared_broker: BrokerProcess) -> None:
    fill(shared_broker, "static")
    first = ConfluentMember(shared_broker, "static", "static", group_instance_id="one")
    second = ConfluentMember(shared_broker, "static", "static", group_instance_id="two")
    poll_until([first, second], lambda _: are_shared([first, second]))
    rebalances, assigned = first.rebalances, second.assignment()
    second.close()
    second = ConfluentMember(shared_broker, "static", "static", group_instance_id="two")
    poll_until([first, second], lambda _: bool(second.assignment()))
    assert second.assignment() == assigned
    assert first.rebalances == rebalances
    first.close()
    second.close()


def test_of_two_clients_with_one_instance_id_the_first_is_told_that_it_is_fenced(shared_broker: BrokerProcess) -> None:
    fill(shared_broker, "doubled")
    first = ConfluentMember(shared_broker, "doubled", "doubled", group_instance_id="one")
    poll_until([first], lambda _: bool(first.assignment()))
    second = ConfluentMember(shared_broker, "doubled", "doubled", group_instance_id="one")
    poll_until([second], lambda _: bool(second.assignment()))
    poll_until([first, second], lambda _: bool(first.errors))
    assert set(first.errors) <= {confluent_kafka.KafkaError._FATAL, confluent_kafka.KafkaError.FENCED_INSTANCE_ID}
    assert not second.errors
    assert second.assignment() == set(range(PARTITIONS))
    second.close()
    first.close()


def test_cooperative_members_keep_what_they_have(shared_broker: BrokerProcess) -> None:
    fill(shared_broker, "cooperative")
    config = {"partition_assignment_strategy": "cooperative-sticky"}
    first = ConfluentMember(shared_broker, "cooperative", "cooperative", **config)
    poll_until([first], lambda found: len(found) == RECORDS)
    second = ConfluentMember(shared_broker, "cooperative", "cooperative", **config)
    poll_until([first, second], lambda _: are_shared([first, second]))
    assert len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2
    first.close()
    second.close()
