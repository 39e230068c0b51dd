"""Holds the tests of the benchmark: each has a topic and a group of its own, writes ten records and reads them back.

pytest runs it with one of the plugins `benchmarks.test_suite.ottla` and `benchmarks.test_suite.apache`, which define the fixtures.
"""

import os
from collections.abc import Callable

import confluent_kafka
import pytest

TESTS = int(os.environ.get("SUITE_TESTS", "50"))
RECORDS = 10


@pytest.mark.parametrize("number", range(TESTS))
def test_a_round_trip(number: int, bootstrap: str, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for _ in range(RECORDS):
        producer.produce(topic, b"value")
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read = 0
    while read < RECORDS:
        read += len(consumer.consume(RECORDS, 60))
    consumer.close()
