"""Gives the tests of a module one broker, its topics, and each of the five transactional clients."""

from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.judged_broker import JudgedBroker, a_judged_broker
from tests.support.transactional import CLIENTS, MARKS, Client
from tests.support.transactional.java import JavaClient

SECONDS = 90

Topic = Callable[..., str]
"""(suffix="", partitions=1) -> the name of a new topic."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgedBroker]:
    """Runs while the tests of a module do; nothing but topics, groups and transactional ids of their own keeps them apart."""
    with a_judged_broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="module", params=[pytest.param(name, marks=MARKS.get(name, [])) for name in CLIENTS])
def client(request: pytest.FixtureRequest, broker: JudgedBroker) -> Iterator[Client]:
    """Each of the five in turn."""
    made = CLIENTS[request.param](broker.bootstrap)
    yield made
    if isinstance(made, JavaClient):
        made.end()


@pytest.fixture
def topic(broker: JudgedBroker, name: str) -> Topic:
    """Makes topics of the test's own."""
    return lambda suffix="", partitions=1: create_topic(broker, name + suffix, partitions)


def create_topic(broker: JudgedBroker, name: str, partitions: int = 1) -> str:
    """Returns the name."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(SECONDS)
    return name


def produce(broker: JudgedBroker, topic: str, *values: str, partition: int = 0) -> None:
    """Writes without a transaction."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(SECONDS) == 0
