"""Quotas on Apache Kafka and on Ottla: the same requests get the same throttle times and error codes, and `ottla quotas` works on both."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.admin_requests import a_topic, create, delete, grow, said
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.batches import a_batch
from tests.support.command_line import CommandLine
from tests.support.java_pair import Pair
from tests.support.wire_client import WireClient, a_wire_client

pytestmark = needs_apache_kafka

BATCH = bytes(a_batch(value_bytes=100_000, timestamps=[int(time.time() * 1000)]))


class Side:
    """One of the two brokers. Every connection is that of the same client."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._port = int(bootstrap.rpartition(":")[2])
        self._client_id = client_id
        self.quotas = CommandLine(bootstrap)

    def limit(self, *values: str) -> None:
        self.quotas("quotas", "set", *values, "--client-id", self._client_id)

    def ask(self, question: Callable[[WireClient], Any]) -> Any:
        """On a new connection: a former one is perhaps not read now."""
        with a_wire_client(self._port, client_id=self._client_id) as client:
            return question(client)


def both(pair: Pair, name: str, scenario: Callable[[Side], list[Any]]) -> tuple[list[Any], list[Any]]:
    return scenario(Side(pair.ours.bootstrap, name)), scenario(Side(pair.theirs.bootstrap, name))


def a_produce(topic: str) -> ProduceRequest:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=BATCH)])]
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)


@pytest.mark.parametrize(("rate", "requests"), [(9_500, 1), (20_000, 3), (1_000_000, 2), (1, 1), (0, 2)])
def test_the_throttle_times_of_producers_are_equal(pair: Pair, name: str, rate: int, requests: int) -> None:
    def scenario(side: Side) -> list[Any]:
        side.ask(lambda client: create(client, a_topic(name)))
        side.limit(f"producer_byte_rate={rate}")
        return [side.ask(lambda client: client.ask(a_produce(name), 9).throttle_time_ms) for _ in range(requests)]

    ours, theirs = both(pair, name, scenario)
    # Some milliseconds lie between the requests, on a busy machine more: they dilute the rate, and count from the first request on.
    assert ours == pytest.approx(theirs, rel=0.02, abs=400)


def test_a_throttled_fetch_is_equal(pair: Pair, name: str) -> None:
    def scenario(side: Side) -> list[Any]:
        topic_id = side.ask(lambda client: create(client, a_topic(name)))[0].topic_id
        for _ in range(4):
            side.ask(lambda client: client.ask(a_produce(name), 9))
        side.limit("consumer_byte_rate=25000")
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2 * len(BATCH))
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic_id=topic_id, partitions=[partition])]
        )
        answers = [side.ask(lambda client: client.ask(request, 17)) for _ in range(2)]
        found = [
            (answer.error_code, answer.session_id, [len(part.records) for topic in answer.responses for part in topic.partitions])
            for answer in answers
        ]
        return [found, [answer.throttle_time_ms for answer in answers]]

    ours, theirs = both(pair, name, scenario)
    assert ours[0] == theirs[0]
    assert ours[1] == pytest.approx(theirs[1], rel=0.02, abs=150)


def test_exhausted_quotas_for_partitions_are_equal(pair: Pair, name: str) -> None:
    def scenario(side: Side) -> list[Any]:
        side.limit("controller_mutation_rate=0.1")
        # Apache Kafka creates the topics of a request in the order of their hashes.
        topics = [a_topic(f"{name}-a", 3), a_topic(f"{name}-b", 3), a_topic("bad name", 3)]
        created = side.ask(lambda client: client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7))
        (first,) = [topic.name for topic in created.topics if not topic.error_code]
        grown = side.ask(lambda client: grow(client, first, 4))
        deleted = [said(topic) for topic in side.ask(lambda client: delete(client, first, version=5))]
        older = side.ask(lambda client: client.ask(CreateTopicsRequest(topics=[a_topic(f"{name}-c", 2)], timeout_ms=10_000), 5))
        answers = [sorted(map(str, map(said, answer.topics))) for answer in (created, older)]
        return [answers, grown, deleted, [created.throttle_time_ms, older.throttle_time_ms]]

    ours, theirs = both(pair, name, scenario)
    assert ours[:3] == theirs[:3]
    assert ours[3] == pytest.approx(theirs[3], rel=0.05, abs=2000)


def test_quotas_are_described_alike(pair: Pair) -> None:
    def scenario(side: Side) -> list[Any]:
        side.quotas("quotas", "set", "producer_byte_rate=1000", "--user", "al ice", "--default-client-id")
        side.quotas("quotas", "set", "request_percentage=2.5", "--default-user")
        side.quotas("quotas", "set", "connection_creation_rate=900", "--ip", "127.0.0.1")
        shown = side.quotas("quotas", "list").rows
        refused = side.quotas("quotas", "set", "speed=1", "--user", "alice", status=1).err
        side.quotas("quotas", "remove", "request_percentage", "--default-user")
        left = side.quotas("quotas", "list", "--default-user").rows
        side.quotas("quotas", "remove", "producer_byte_rate", "--user", "al ice", "--default-client-id")
        side.quotas("quotas", "remove", "connection_creation_rate", "--ip", "127.0.0.1")
        return [shown, refused, left]

    ours, theirs = both(pair, "describing", scenario)
    assert ours == theirs
    assert ["<default>", "-", "-", "request_percentage", "2.5"] in ours[0]
