"""Gives the suite an Apache Kafka 3.9.1, started as the tests of this project start it."""

import uuid
from collections.abc import Callable, Iterator

import confluent_kafka.admin
import confluent_kafka.cimpl
import pytest

from benchmarks.test_suite.measured import SCOPE, making_a_topic, note_memory, pytest_sessionfinish, starting
from tests.support.apache_kafka import ApacheKafka

__all__ = ["bootstrap", "broker", "new_topic", "pytest_sessionfinish"]

CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
"""The same settings as in pytest-ottla."""


@pytest.fixture(scope=SCOPE)
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """One broker with its ZooKeeper."""
    made = ApacheKafka(tmp_path_factory.mktemp("broker"), 1, CONFIG)
    with starting():
        made.start()
    yield made
    note_memory(made.pid())
    made.stop()


@pytest.fixture
def bootstrap(broker: ApacheKafka) -> str:
    """host:port."""
    return broker.bootstrap


@pytest.fixture
def new_topic(bootstrap: str) -> Iterator[Callable[[], str]]:
    """Creates a topic of the test by an administrative client, as suites do that have no helpers."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    names: list[str] = []

    def make() -> str:
        names.append(uuid.uuid4().hex)
        with making_a_topic():
            for made in admin.create_topics([confluent_kafka.cimpl.NewTopic(names[-1], 1, 1)]).values():
                made.result()
        return names[-1]

    yield make
    for deleted in admin.delete_topics(names).values():
        deleted.result()
