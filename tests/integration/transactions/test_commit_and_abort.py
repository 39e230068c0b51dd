"""Transactions of real clients are seen whole, in order and once, or not at all."""

import pytest

from tests.integration.transactions.conftest import Topic, produce
from tests.support.judged_broker import JudgedBroker, needs_its_broker
from tests.support.transactional import Client, reads, values_of

pytestmark = needs_its_broker

PARTITIONS = 3


def in_each(partitions: int, *values: str) -> dict[int, list[str]]:
    """The same values in every partition."""
    return {partition: list(values) for partition in range(partitions)}


def test_a_committed_transaction_is_read_in_both_isolation_levels(client: Client, topic: Topic, name: str) -> None:
    written = topic()
    producer = client.producer(name)
    producer.begin()
    producer.send(written, 0, "a", "b", "c")
    producer.commit()
    assert values_of(client.read(written, committed=False)) == {0: ["a", "b", "c"]}
    reads(client, written, {0: ["a", "b", "c"]})
    producer.close()


def test_an_aborted_transaction_is_read_uncommitted_only(client: Client, topic: Topic, name: str) -> None:
    written = topic()
    producer = client.producer(name)
    producer.begin()
    producer.send(written, 0, "a", "b", "c")
    producer.flush()
    producer.abort()
    assert client.read(written) == []
    assert values_of(client.read(written, committed=False)) == {0: ["a", "b", "c"]}
    producer.close()


def test_commits_and_aborts_of_one_producer_follow_each_other(client: Client, topic: Topic, name: str) -> None:
    written = topic()
    producer = client.producer(name)
    kept, sent = [], []
    for number in range(12):
        producer.begin()
        values = [f"{number}.{record}" for record in range(number % 4 + 1)]
        producer.send(written, 0, *values)
        sent += values
        if number % 3 == 1:
            producer.flush()
            producer.abort()
        else:
            producer.commit()
            kept += values
    reads(client, written, {0: kept})
    assert values_of(client.read(written, committed=False)) == {0: sent}
    producer.close()


def test_a_transaction_spans_topics_and_partitions(client: Client, topic: Topic, name: str) -> None:
    topics = [topic(f".{number}", PARTITIONS) for number in range(3)]
    producer = client.producer(name)
    for values, is_kept in ((["a", "b"], True), (["c"], False), (["d", "e", "f"], True)):
        producer.begin()
        for written in topics:
            for partition in range(PARTITIONS):
                producer.send(written, partition, *values)
        producer.flush()
        if is_kept:
            producer.commit()
        else:
            producer.abort()
    for written in topics:
        reads(client, written, in_each(PARTITIONS, *"abdef"), PARTITIONS)
        assert values_of(client.read(written, PARTITIONS, committed=False)) == in_each(PARTITIONS, *"abcdef")
    producer.close()


def test_an_open_transaction_holds_back_what_is_behind_it(client: Client, topic: Topic, broker: JudgedBroker, name: str) -> None:
    written = topic(partitions=2)
    produce(broker, written, "before")
    producer = client.producer(name)
    producer.begin()
    producer.send(written, 0, "inside")
    producer.flush()
    produce(broker, written, "behind")
    produce(broker, written, "beside", partition=1)

    reads(client, written, {0: ["before"], 1: ["beside"]}, 2)
    assert values_of(client.read(written, 2, committed=False)) == {0: ["before", "inside", "behind"], 1: ["beside"]}
    producer.commit()
    reads(client, written, {0: ["before", "inside", "behind"], 1: ["beside"]}, 2)
    producer.close()


def test_open_transactions_of_several_producers_end_in_any_order(client: Client, topic: Topic, name: str) -> None:
    written = topic()
    producers = [client.producer(f"{name}.{number}") for number in range(4)]
    for number, producer in enumerate(producers):
        producer.begin()
        producer.send(written, 0, f"{number}.0")
        producer.flush()
    for number, producer in enumerate(producers):
        producer.send(written, 0, f"{number}.1")
        producer.flush()
    sent = [f"{number}.{record}" for record in range(2) for number in range(4)]

    producers[3].commit()
    assert client.read(written) == []
    producers[0].commit()
    reads(client, written, {0: ["0.0"]})
    producers[1].abort()
    reads(client, written, {0: ["0.0"]})
    producers[2].commit()
    reads(client, written, {0: [value for value in sent if not value.startswith("1")]})
    assert values_of(client.read(written, committed=False)) == {0: sent}
    for producer in producers:
        producer.close()


@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "aborted"])
def test_a_transaction_of_many_batches_is_one(client: Client, topic: Topic, name: str, is_kept: bool) -> None:
    written = topic(partitions=2)
    producer = client.producer(name)
    producer.begin()
    values = [f"{number:05d}" * 20 for number in range(2_000)]
    for start in range(0, len(values), 200):
        for partition in range(2):
            producer.send(written, partition, *values[start : start + 200])
        producer.flush()
    assert client.read(written, 2) == []
    if is_kept:
        producer.commit()
    else:
        producer.abort()
    reads(client, written, in_each(2, *values) if is_kept else {}, 2)
    assert values_of(client.read(written, 2, committed=False)) == in_each(2, *values)
    producer.close()


def test_a_transaction_without_records_changes_nothing(client: Client, topic: Topic, name: str) -> None:
    written = topic()
    producer = client.producer(name)
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()
    producer.begin()
    producer.send(written, 0, "a")
    producer.commit()
    assert [each[1:] for each in client.read(written)] == [(0, "a")]
    producer.close()
