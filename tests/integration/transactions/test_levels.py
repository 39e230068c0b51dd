"""Transactional clients of both versions on one coordinator, at each level of transaction.version and while the level changes (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from ottla.protocol.features import TRANSACTION_VERSION
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.apache_kafka_4 import needs_apache_kafka_4
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.judged_broker import QUICK
from tests.support.transaction_requests import Scene
from tests.support.transactional import CLIENTS, Client, Producer, Refused
from tests.support.transactional.java import Java4Client
from tests.support.wire_client import a_wire_client

pytestmark = needs_apache_kafka_4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("broker"), **QUICK) as started:
        yield started


@pytest.fixture(scope="module")
def java(broker: BrokerProcess) -> Iterator[Client]:
    client = Java4Client(broker.bootstrap)
    yield client
    client.end()


def finalize(broker: BrokerProcess, level: int) -> None:
    """Raise the level, or lower it; one that is there already is refused both times."""
    with a_wire_client(broker.port) as client:
        for upgrade_type in (1, 3):
            update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=upgrade_type)
            if not client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1).results[0].error_code:
                return


def epoch(broker: BrokerProcess, transactional_id: str) -> int:
    """The producer epoch of the id, once its transaction has ended."""
    with Scene(broker.port) as scene:
        return scene.wait_until_completed(transactional_id).epoch


def commit(producer: Producer, topic: str, value: str) -> None:
    producer.begin()
    producer.send(topic, 0, value)
    producer.commit()


def test_at_level_2_each_end_raises_the_epoch_of_a_new_client_and_of_no_old_one(broker: BrokerProcess, java: Client, name: str) -> None:
    finalize(broker, 2)
    old = CLIENTS["confluent-kafka"](broker.bootstrap)
    producers = {f"{name}-{client.name}": client.producer(f"{name}-{client.name}") for client in (java, old)}
    for number in range(3):
        for transactional_id, producer in producers.items():
            commit(producer, name, f"{transactional_id}-{number}")
    assert [epoch(broker, each) for each in producers] == [3, 0]
    found = [each.value for each in java.read(name)]
    assert found == [f"{each}-{number}" for number in range(3) for each in producers]


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 1), (1, 2)])
@pytest.mark.parametrize("is_open", [True, False], ids=["in-a-transaction", "between-transactions"])
def test_a_client_goes_on_when_the_level_changes(
    broker: BrokerProcess, java: Client, name: str, before: int, after: int, is_open: bool
) -> None:
    finalize(broker, before)
    producer = java.producer(name)
    commit(producer, name, "before")
    committed = ["before"]
    if is_open:
        producer.begin()
        producer.send(name, 0, "between")
        producer.flush()
    finalize(broker, after)
    if is_open:
        committed += done(producer.commit, producer.abort, "between")
    for number in range(3):
        value = f"after-{number}"
        committed += done(partial(commit, producer, name, value), producer.abort, value)
    assert "after-2" in committed
    assert [each.value for each in java.read(name)] == committed


def done(act: Callable[[], None], abort: Callable[[], None], value: str) -> list[str]:
    """What is committed: nothing, if the client has to abort its transaction."""
    try:
        act()
    except Refused:
        abort()
        return []
    return [value]
