"""Offsets of a group are committed with the records that were made of what the group read, or not at all."""

import confluent_kafka
import pytest

from tests.integration.transactions.conftest import SECONDS, Topic, produce
from tests.support.broker_process import eventually
from tests.support.judged_broker import JudgedBroker, needs_its_broker
from tests.support.transactional import Client, Found, Member, reads

pytestmark = needs_its_broker


def committed_offset(broker: JudgedBroker, group: str, topic: str) -> int:
    """Asks for stable offsets, so it waits for an open transaction; -1001 when there is none."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], SECONDS)
        return found.offset
    finally:
        consumer.close()


def poll_for(member: Member, count: int) -> list[Found]:
    """What the member is given, once it is so much."""
    found: list[Found] = []
    eventually(lambda: found.extend(member.poll()) or len(found) >= count, SECONDS, f"{count} records come")
    assert len(found) == count
    return found


def test_offsets_are_committed_with_the_records(client: Client, topic: Topic, broker: JudgedBroker, name: str) -> None:
    source, target = topic(".source"), topic(".target")
    produce(broker, source, "a", "b", "c")
    member = client.member(source, name)
    found = poll_for(member, 3)
    producer = client.producer(name)
    producer.begin()
    producer.send(target, 0, *(each.value.upper() for each in found))
    producer.send_offsets(member, source, 0, found[-1].offset + 1)
    producer.commit()

    assert committed_offset(broker, name, source) == 3
    reads(client, target, {0: ["A", "B", "C"]})
    member.close()
    producer.close()


def test_offsets_of_an_aborted_transaction_are_forgotten(client: Client, topic: Topic, broker: JudgedBroker, name: str) -> None:
    source, target = topic(".source"), topic(".target")
    produce(broker, source, "a", "b", "c")
    member = client.member(source, name)
    poll_for(member, 3)
    producer = client.producer(name)
    for is_kept, offset in ((True, 1), (False, 3)):
        producer.begin()
        producer.send(target, 0, f"up to {offset}")
        producer.send_offsets(member, source, 0, offset)
        producer.flush()
        if is_kept:
            producer.commit()
        else:
            producer.abort()

    assert committed_offset(broker, name, source) == 1
    reads(client, target, {0: ["up to 1"]})
    member.close()
    producer.close()


def test_a_transaction_may_hold_offsets_alone(client: Client, topic: Topic, broker: JudgedBroker, name: str) -> None:
    source = topic()
    produce(broker, source, "a", "b")
    member = client.member(source, name)
    poll_for(member, 2)
    producer = client.producer(name)
    producer.begin()
    producer.send_offsets(member, source, 0, 1)
    producer.send_offsets(member, source, 0, 2)
    producer.commit()

    assert committed_offset(broker, name, source) == 2
    member.close()
    producer.close()


def test_a_successor_reads_again_what_a_copier_that_died_had_not_committed(
    client: Client, topic: Topic, broker: JudgedBroker, name: str
) -> None:
    source, target = topic(".source"), topic(".target")
    rows = [str(number) for number in range(20)]
    produce(broker, source, *rows)
    for how in ("dies", "ends"):
        member = client.member(source, name)
        producer = client.producer(name)
        found = poll_for(member, 20 if how == "dies" else 13)
        for start in range(0, len(found), 7):
            part = found[start : start + 7]
            producer.begin()
            producer.send(target, 0, *(each.value for each in part))
            producer.send_offsets(member, source, 0, part[-1].offset + 1)
            producer.flush()
            if how == "dies" and start == 7:
                break
            producer.commit()
        member.close()
        producer.close()

    assert committed_offset(broker, name, source) == 20
    reads(client, target, {0: rows})


@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "aborted"])
def test_an_offset_is_not_stable_while_its_transaction_is_open(
    client: Client, topic: Topic, broker: JudgedBroker, name: str, is_kept: bool
) -> None:
    source = topic()
    produce(broker, source, "a", "b")
    member = client.member(source, name)
    poll_for(member, 2)
    producer = client.producer(name)
    producer.begin()
    producer.send_offsets(member, source, 0, 1)
    producer.commit()
    producer.begin()
    producer.send_offsets(member, source, 0, 2)

    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        consumer.committed([confluent_kafka.TopicPartition(source, 0)], 1.0)
    assert refused.value.args[0].code() in {confluent_kafka.KafkaError._TIMED_OUT, confluent_kafka.KafkaError.UNSTABLE_OFFSET_COMMIT}
    if is_kept:
        producer.commit()
    else:
        producer.abort()
    (found,) = consumer.committed([confluent_kafka.TopicPartition(source, 0)], SECONDS)
    assert found.offset == (2 if is_kept else 1)
    consumer.close()
    member.close()
    producer.close()
